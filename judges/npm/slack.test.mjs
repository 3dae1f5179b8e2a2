import assert from 'node:assert/strict'
import test from 'node:test'
import slackAPI from '@slack/web-api'
import { account, serve, token } from './sim.mjs'

const { LogLevel, WebClient, retryPolicies } = slackAPI
const sim = await serve('slack')
// The usual policy is ten repeats in about half an hour; here its pauses are shorter.
const soon = { ...retryPolicies.tenRetriesInAboutThirtyMinutes, minTimeout: 1, maxTimeout: 5 }
const connect = (key) => new WebClient(key, { slackApiUrl: `${sim.url}/api/`, retryConfig: soon, logLevel: LogLevel.ERROR })
const slack = connect(token)
const wish = () => slack.chat.postMessage({
  channel: 'C1', text: 'call Ann', metadata: { event_type: 'opledger', event_payload: { id: 'wish-1' } },
})

test('@slack/web-api posts a message and finds its metadata in the channel', async () => {
  await sim.settings({ index_lag: '0s' })
  const made = await wish()
  assert.equal(made.ok, true)
  assert.match(made.ts, /^\d+\.\d{6}$/)
  assert.equal(made.channel, 'C1')
  const { messages, has_more: more } = await slack.conversations.history({ channel: 'C1', include_all_metadata: true })
  assert.equal(more, false)
  assert.deepEqual(messages.map((m) => [m.ts, m.text, m.metadata.event_payload.id]), [[made.ts, 'call Ann', 'wish-1']])
  assert.equal((await slack.conversations.replies({ channel: 'C1', ts: made.ts })).messages.length, 1)
  assert.equal((await slack.auth.test()).team_id, account)
  await sim.want({ sends: 1, objects: 1 })
})

test('@slack/web-api repeats a lost answer and makes a second message', async () => {
  await sim.rule({ do: 'lose_response', method: 'POST', nth: 1 })
  await wish()
  await sim.want({ sends: 2, objects: 2 })
})

test('@slack/web-api makes a message of each repeat when every answer is lost', () => sim.lost('@slack/web-api', wish))

test('@slack/web-api reads errors from answers with status 200', async () => {
  const stranger = await sim.caught(connect('xoxb-unknown').chat.postMessage({ channel: 'C1', text: 'x' }))
  assert.equal(stranger.code, 'slack_webapi_platform_error')
  assert.equal(stranger.data.error, 'invalid_auth')
  assert.equal((await sim.writes())[0].answer, '200')
  assert.equal((await sim.objects()).length, 0)
})

test('@slack/web-api waits as long as a rate limit says', async () => {
  await sim.rule({ do: 'rate_limit', method: 'POST', status: 429, after: '1s', times: 1 })
  assert.equal((await wish()).ok, true)
  const [refused, made] = await sim.writes()
  assert.ok(new Date(made.received_at) - new Date(refused.received_at) >= 900)
  await sim.want({ sends: 2, objects: 1 })
})
