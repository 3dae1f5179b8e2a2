import assert from 'node:assert/strict'
import test from 'node:test'
import { Resend } from 'resend'
import { serve, token } from './sim.mjs'

const sim = await serve('resend')
const connect = (key) => new Resend(key, { baseUrl: sim.url })
const resend = connect(token)
const wish = { from: 'a@example.com', to: 'b@example.com', subject: 'hello', text: 'x', tags: [{ name: 'opledger', value: 'wish-1' }] }
const send = (key, more) => resend.emails.send({ ...wish, ...more }, key && { idempotencyKey: key })

test('resend sees the replay of a key', async () => {
  const first = await send('k1')
  assert.equal(first.error, null)
  const again = await send('k1')
  assert.equal(again.data.id, first.data.id)
  const read = await resend.emails.get(first.data.id)
  assert.equal(read.data.subject, 'hello')
  assert.deepEqual(read.data.to, ['b@example.com'])
  await sim.want({ sends: 2, objects: 1, keys: 1 })
})

test('resend sees the two meanings of 409', async () => {
  await send('k1')
  const other = await send('k1', { subject: 'another' })
  assert.equal(other.error.name, 'invalid_idempotent_request')
  assert.equal(other.error.statusCode, 409)
  await sim.rule({ do: 'hold', method: 'POST', times: 1 })
  const held = send('k2')
  await sim.held(1)
  assert.equal((await send('k2')).error.name, 'concurrent_idempotent_requests')
  await sim.release()
  assert.equal((await held).error, null)
  await sim.want({ sends: 4, objects: 2, keys: 2 })
})

// It never throws: a lost answer is an error without a status.
test('resend does not repeat a lost answer', () => sim.lost('resend', async () => {
  const { error } = await send('k1')
  assert.equal(error?.name, 'application_error')
  assert.equal(error.statusCode, null)
  throw new Error(error.message)
}, 1))

test('resend makes two e-mails of two calls without a key', async () => {
  assert.notEqual((await send()).data.id, (await send()).data.id)
  await sim.want({ sends: 2, objects: 2 })
})

test('resend sees errors by name', async () => {
  assert.equal((await send(undefined, { subject: undefined })).error.name, 'missing_required_field')
  assert.equal((await connect('re_unknown').emails.send(wish)).error.name, 'invalid_api_key')
  assert.equal((await resend.emails.get('none')).error.name, 'not_found')
  assert.equal((await send('k'.repeat(257))).error.name, 'invalid_idempotency_key')
  await sim.rule({ do: 'rate_limit', after: '3s', times: 1 })
  const limit = await send()
  assert.equal(limit.error.name, 'rate_limit_exceeded')
  assert.equal(limit.headers['retry-after'], '3')
  assert.equal((await sim.objects()).length, 0)
})

test('resend pages through the list', async () => {
  const made = []
  for (let i = 0; i < 3; i++) made.unshift((await send()).data.id)
  const first = await resend.emails.list({ limit: 2 })
  assert.equal(first.data.has_more, true)
  const second = await resend.emails.list({ limit: 2, after: first.data.data.at(-1).id })
  assert.equal(second.data.has_more, false)
  assert.deepEqual([...first.data.data, ...second.data.data].map((e) => e.id), made)
  assert.equal((await resend.domains.list()).data.data[0].status, 'verified')
})
