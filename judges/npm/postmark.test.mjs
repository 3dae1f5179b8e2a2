import assert from 'node:assert/strict'
import test from 'node:test'
import { Errors, ServerClient } from 'postmark'
import { account, serve, token } from './sim.mjs'

const sim = await serve('postmark')
const connect = (key) => new ServerClient(key, { useHttps: false, requestHost: new URL(sim.url).host })
const postmark = connect(token)
const mark = 'opl0123456789abcdef0123456789abcdef'
const wish = () => postmark.sendEmail({
  From: 'a@example.com', To: 'b@example.com', Subject: 'hello', TextBody: 'x', Metadata: { opledger: mark },
})

test('postmark sends a mail and finds it by its metadata', async () => {
  await sim.settings({ search_lag: '0s' })
  const sent = await wish()
  assert.equal(sent.ErrorCode, 0)
  assert.equal(sent.Message, 'OK')
  const found = await postmark.getOutboundMessages({ count: 10, offset: 0, metadata_opledger: mark })
  assert.deepEqual(found.Messages.map((m) => m.MessageID), [sent.MessageID])
  assert.equal(found.TotalCount, 1)
  assert.equal((await postmark.getServer()).ID, account)
  await sim.want({ sends: 1, objects: 1 })
})

test('postmark does not repeat a lost answer', () => sim.lost('postmark', wish))

test('postmark sees errors as its types', async () => {
  const stranger = await sim.caught(connect('unknown').sendEmail({ From: 'a', To: 'b' }))
  assert.ok(stranger instanceof Errors.InvalidAPIKeyError, stranger)
  const fault = async (rule) => {
    await sim.rule({ method: 'POST', times: 1, ...rule })
    return sim.caught(wish())
  }
  const invalid = await fault({ do: 'status', status: 422 })
  assert.ok(invalid instanceof Errors.ApiInputError, invalid)
  assert.equal(invalid.code, 300)
  assert.ok(await fault({ do: 'rate_limit' }) instanceof Errors.RateLimitExceededError)
  assert.ok(await fault({ do: 'refuse' }) instanceof Errors.ServiceUnavailablerError) // its own spelling
  assert.equal((await sim.objects()).length, 0)
  assert.ok(await fault({ do: 'status_after_commit' }) instanceof Errors.InternalServerError)
  await sim.want({ sends: 5, objects: 1 })
})
