import assert from 'node:assert/strict'
import test from 'node:test'
import { SquareClient, SquareError } from 'square'
import { serve, token } from './sim.mjs'

const sim = await serve('square')
const connect = (key) => new SquareClient({ token: key, baseUrl: sim.url })
const square = connect(token)
const wish = (idempotencyKey, amount = 100n) => square.payments.create({
  idempotencyKey, sourceId: 'cnon:card-nonce-ok', note: 'opledger wish-1', amountMoney: { amount, currency: 'USD' },
})

test('square sees the replay of a key', async () => {
  const { payment } = await wish('k1')
  assert.equal(payment.amountMoney.amount, 100n)
  assert.equal((await wish('k1')).payment.id, payment.id)
  await sim.want({ sends: 2, objects: 1, keys: 1 })
})

test('square sees another body under the key, and a key in use', async () => {
  await wish('k1')
  const reused = await sim.caught(wish('k1', 101n))
  assert.ok(reused instanceof SquareError, reused)
  assert.equal(reused.statusCode, 400)
  assert.equal(reused.errors[0].code, 'IDEMPOTENCY_KEY_REUSED')
  assert.equal(reused.errors[0].category, 'INVALID_REQUEST_ERROR')
  assert.ok(reused.errors[0].detail)
  await sim.rule({ do: 'hold', method: 'POST', times: 1 })
  const held = wish('k2')
  await sim.held(1)
  assert.equal((await sim.caught(wish('k2'))).errors[0].code, 'CONFLICT')
  await sim.release()
  assert.ok((await held).payment.id)
  await sim.want({ sends: 4, objects: 2, keys: 2 })
})

test('square does not repeat a lost answer', () => sim.lost('square', () => wish('k1'), 1))

test('square repeats a 500 from after the commit, and the key holds', async () => {
  await sim.rule({ do: 'status_after_commit', method: 'POST', nth: 1 })
  assert.ok((await wish('k1')).payment.id)
  await sim.want({ sends: 2, objects: 1, keys: 1 })
})

test('square sees who is not known and a key that is too long', async () => {
  const stranger = await sim.caught(connect('unknown').payments.create({ idempotencyKey: 'k1', sourceId: 's' }))
  assert.equal(stranger.errors[0].code, 'UNAUTHORIZED')
  assert.equal((await sim.caught(wish('k'.repeat(46)))).statusCode, 400)
  assert.equal((await sim.objects()).length, 0)
})

test('square reads its list', async () => {
  await sim.settings({ index_lag: '0s', search_lag: '0s' })
  const { payment } = await wish('k1')
  const seen = []
  for await (const p of await square.payments.list()) seen.push(p.id)
  assert.deepEqual(seen, [payment.id])
  const { customer } = await square.customers.create({ idempotencyKey: 'k2', givenName: 'Ann', referenceId: 'wish-2' })
  const found = await square.customers.search({ query: { filter: { referenceId: { exact: 'wish-2' } } } })
  assert.deepEqual(found.customers.map((c) => c.id), [customer.id])
})
