import assert from 'node:assert/strict'
import test from 'node:test'
import Stripe from 'stripe'
import { account, serve, token } from './sim.mjs'

const sim = await serve('stripe-v1')
const { hostname: host, port } = new URL(sim.url)
const connect = (key, more) => new Stripe(key, { host, port, protocol: 'http', telemetry: false, ...more })
const stripe = connect(token)
const wish = { amount: 2000, currency: 'usd', metadata: { opledger: 'wish-1', other: 'x' } }
const create = (key, more) => stripe.paymentIntents.create({ ...wish, ...more }, key && { idempotencyKey: key })

test('stripe-node sees the replay of a key', async () => {
  const first = await create('k1')
  assert.equal(first.object, 'payment_intent')
  assert.equal(first.amount, 2000)
  assert.equal(first.metadata.opledger, 'wish-1')
  assert.match(first.lastResponse.requestId, /^req_/)
  const again = await create('k1')
  assert.equal(again.id, first.id)
  assert.equal(again.lastResponse.headers['idempotent-replayed'], 'true')
  assert.equal(again.lastResponse.headers['original-request'], first.lastResponse.requestId)
  await sim.want({ sends: 2, objects: 1, keys: 1 })
})

test('stripe-node sees another body under the key as its idempotency error', async () => {
  await create('k1')
  const err = await sim.caught(create('k1', { amount: 2001 }))
  assert.ok(err instanceof Stripe.errors.StripeIdempotencyError, err)
  assert.equal(err.rawType, 'idempotency_error')
  assert.match(err.requestId, /^req_/)
  await sim.want({ sends: 2, objects: 1, keys: 1 })
})

test('stripe-node repeats a key in use, and has the first result when that is done', async () => {
  await sim.rule({ do: 'hold', method: 'POST', times: 1 })
  const first = create('k1')
  await sim.held(1)
  const err = await sim.caught(stripe.paymentIntents.create(wish, { idempotencyKey: 'k1', maxNetworkRetries: 0 }))
  assert.equal(err.code, 'idempotency_key_in_use')
  assert.equal(err.statusCode, 409)
  const second = create('k1')
  await sim.answered(409, 2)
  await sim.release()
  assert.equal((await second).id, (await first).id)
  assert.equal((await sim.objects()).length, 1)
})

test('stripe-node repeats a lost answer under its own key', async () => {
  await sim.rule({ do: 'lose_response', method: 'POST', nth: 1 })
  const made = await create()
  assert.equal(made.lastResponse.headers['idempotent-replayed'], 'true')
  await sim.want({ sends: 2, objects: 1, keys: 1 })
})

test('stripe-node gives up when every answer is lost', () => sim.lost('stripe', () => create(), 1))

test('stripe-node repeats a closed connection once where repeats are switched off', async () => {
  await sim.rule({ do: 'lose_response', method: 'POST', nth: 1 })
  await connect(token, { maxNetworkRetries: 0 }).paymentIntents.create(wish)
  await sim.want({ sends: 2, objects: 1, keys: 1 })
})

test('stripe-node makes two objects of two calls without a key', async () => {
  assert.notEqual((await create()).id, (await create()).id)
  await sim.want({ sends: 2, objects: 2, keys: 2 })
})

test('stripe-node repeats a 500, and is told the stored 500 each time', async () => {
  await sim.rule({ do: 'status_after_commit', method: 'POST', nth: 1 })
  const err = await sim.caught(create())
  assert.ok(err instanceof Stripe.errors.StripeAPIError, err)
  assert.equal(err.headers['idempotent-replayed'], 'true')
  await sim.want({ sends: 3, objects: 1, keys: 1 })
})

test('stripe-node sees errors as its types', async () => {
  const missing = await sim.caught(stripe.paymentIntents.create({ amount: 1 }))
  assert.ok(missing instanceof Stripe.errors.StripeInvalidRequestError, missing)
  assert.equal(missing.param, 'currency')
  const none = await sim.caught(stripe.paymentIntents.retrieve('pi_none'))
  assert.equal(none.code, 'resource_missing')
  const stranger = await sim.caught(connect('sk_unknown').paymentIntents.create(wish))
  assert.ok(stranger instanceof Stripe.errors.StripeAuthenticationError, stranger)

  await sim.rule({ do: 'status', status: 402, method: 'POST', times: 1 })
  const card = await sim.caught(create('k1'))
  assert.ok(card instanceof Stripe.errors.StripeCardError, card)
  assert.equal(card.rawType, 'card_error')
  assert.equal(card.code, 'card_declined')
  assert.ok(card.decline_code)

  await sim.rule({ do: 'rate_limit', method: 'POST', times: 1 })
  const limit = await sim.caught(create())
  assert.ok(limit instanceof Stripe.errors.StripeRateLimitError, limit)
  assert.equal((await sim.objects()).length, 0)
})

test('stripe-node pages through a list and a search, and reads the account', async () => {
  await sim.settings({ search_lag: '0s' })
  const made = []
  for (let i = 0; i < 7; i++) made.unshift((await stripe.customers.create({ name: `Ann ${i}`, metadata: { opledger: 'wish-1' } })).id)
  const ids = async (pages) => (await pages.autoPagingToArray({ limit: 100 })).map((c) => c.id)
  assert.deepEqual(await ids(stripe.customers.list({ limit: 3 })), made)
  assert.deepEqual(await ids(stripe.customers.search({ limit: 3, query: "metadata['opledger']:'wish-1'" })), made)
  assert.deepEqual(await ids(stripe.customers.list({ created: { lt: 1 } })), [])
  assert.equal((await stripe.accounts.retrieve()).id, account)
  const refund = await stripe.refunds.create({ payment_intent: 'pi_1', metadata: { opledger: 'wish-2' } })
  assert.equal(refund.status, 'succeeded')
})
