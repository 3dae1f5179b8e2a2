import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'
import { rows } from './sim.mjs'

const file = (name) => readFileSync(new URL(name, import.meta.url), 'utf8')

test('the manual names every judge with its version, and no other', () => {
  const want = Object.entries(JSON.parse(file('package.json')).dependencies)
  assert.deepEqual(rows().map((r) => [r.client, r.version]).sort(), want.sort())
})

test('the lock file names no place to download from', () => {
  assert.doesNotMatch(file('package-lock.json'), /"resolved"/)
})
