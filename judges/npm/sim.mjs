// A simulator in a process of its own, its admin API, and the table "Judged by"
// of the manual. One for each test file.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { after, beforeEach } from 'node:test'
import { fileURLToPath } from 'node:url'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))

export const token = 'sim-token'
export const account = 'acct_1'

// serve runs the simulator for the tests of a file. Each test begins anew.
export async function serve (preset) {
  const binary = process.env.SIM || here('.sim/opledger')
  const child = spawn(binary, ['sim', '--preset', preset, '--listen', '127.0.0.1:0', '--json'], { stdio: ['ignore', 'pipe', 'inherit'] })
  const failed = once(child, 'error').then(([err]) => { throw new Error(`${binary} does not start (npm test builds it): ${err.message}`) })
  const ended = once(child, 'exit').then(([code]) => { throw new Error(`${binary} ended with ${code}`) })
  failed.catch(() => {})
  ended.catch(() => {})
  const line = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), failed, ended])
  const sim = new Sim(JSON.parse(line[0]).sim, preset)
  after(() => child.kill())
  beforeEach(() => sim.call('POST', '/reset'))
  return sim
}

class Sim {
  constructor (url, preset) {
    this.url = url
    this.preset = preset
  }

  async call (method, path, body) {
    const answer = await fetch(`${this.url}/_sim${path}`, { method, body: body && JSON.stringify(body) })
    assert.ok(answer.ok, `${method} ${path}: ${answer.status}`)
    return answer.status === 204 ? undefined : answer.json()
  }

  rule (rule) { return this.call('POST', '/rules', rule) }
  settings (patch) { return this.call('PATCH', '/settings', patch) }
  held (count) { return this.call('GET', `/held?count=${count}&wait=20s`) }
  release () { return this.call('POST', '/release', {}) }
  async objects () { return (await this.call('GET', '/objects')).items }

  // writes are the requests that should have made something, as they came off
  // the wire.
  async writes () {
    const { items } = await this.call('GET', '/requests?after=0')
    return items.filter((row) => row.operation === 'create' || row.operation === 'upsert')
  }

  // answered waits until so many writes were answered with a status.
  async answered (status, count) {
    const end = Date.now() + 20_000
    for (;;) {
      const writes = await this.writes()
      if (writes.filter((row) => row.answer === String(status)).length >= count) return
      assert.ok(Date.now() < end, `${count} answers ${status}: ${JSON.stringify(writes)}`)
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }

  // want holds the simulator's own count. keys is left out where there are none.
  async want ({ sends, objects, keys }) {
    const writes = await this.writes()
    const seen = new Set(writes.map((row) => row.idempotency_key).filter(Boolean))
    assert.deepEqual(
      { sends: writes.length, objects: (await this.objects()).length, keys: seen.size },
      { sends, objects, keys: keys ?? 0 },
      JSON.stringify(writes))
  }

  // lost loses every answer to one call, and holds what the client makes of that
  // against the manual.
  async lost (client, call, keys) {
    await this.rule({ do: 'lose_response', method: 'POST' })
    await assert.rejects(call(), `${client}: the call succeeded, with every answer lost`)
    const { sends, objects, preset } = judged(client)
    assert.equal(preset, this.preset)
    await this.want({ sends, objects, keys })
  }

  // caught is the error of a call that has begun.
  async caught (call) {
    try {
      await call
    } catch (err) {
      return err
    }
    assert.fail('the call succeeded')
  }
}

// judged is the row of a client in the manual; its version is the one installed.
function judged (client) {
  const row = rows().find((r) => r.client === client)
  assert.ok(row, `docs/simulator.md, "Judged by": there is no row for ${client}`)
  return row
}

// rows are those clients of the manual's table that come from npm; ../go holds the
// row of its own.
export function rows () {
  const manual = readFileSync(here('../../docs/simulator.md'), 'utf8')
  return [...manual.matchAll(/^\| `(?!stripe-go`)([^`]+)` (\d\S+) \| `([^`]+)` \| .* \| (\d+) \| (\d+) \|$/gm)].map(
    ([, client, version, preset, sends, objects]) => ({ client, version, preset, sends: +sends, objects: +objects }))
}
