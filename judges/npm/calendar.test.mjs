import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import test from 'node:test'
import { auth, calendar } from '@googleapis/calendar'
import { account, serve, token } from './sim.mjs'

const sim = await serve('google-calendar')
const connect = (key) => {
  const credential = new auth.OAuth2()
  credential.setCredentials({ access_token: key })
  return calendar({ version: 'v3', auth: credential, rootUrl: `${sim.url}/` })
}
const google = connect(token)
const chosen = () => randomUUID().replaceAll('-', '')
const wish = (id, summary = 'call Ann') => google.events.insert({ calendarId: 'primary', requestBody: { id, summary } })

test('@googleapis/calendar makes an event under a chosen id and reads it back', async () => {
  const id = chosen()
  const made = await wish(id)
  assert.equal(made.data.id, id)
  assert.equal(made.data.kind, 'calendar#event')
  const read = await google.events.get({ calendarId: 'primary', eventId: id })
  assert.equal(read.data.summary, 'call Ann')
  assert.equal(read.data.status, 'confirmed')
  assert.equal((await google.calendars.get({ calendarId: 'primary' })).data.id, account)
  await sim.want({ sends: 1, objects: 1, keys: 1 })
})

test('@googleapis/calendar sees a taken id as a duplicate', async () => {
  const id = chosen()
  await wish(id)
  const err = await sim.caught(wish(id, 'another'))
  assert.equal(err.status, 409)
  assert.equal(err.errors[0].reason, 'duplicate')
  await sim.want({ sends: 2, objects: 1, keys: 1 })
})

test('@googleapis/calendar does not repeat a lost answer', () => sim.lost('@googleapis/calendar', () => wish(chosen()), 1))

test('@googleapis/calendar sees errors with their reason', async () => {
  const none = await sim.caught(google.events.get({ calendarId: 'primary', eventId: 'none' }))
  assert.equal(none.errors[0].reason, 'notFound')
  await sim.rule({ do: 'rate_limit', method: 'POST', times: 1 })
  const limit = await sim.caught(wish(chosen()))
  assert.equal(limit.status, 403)
  assert.equal(limit.errors[0].reason, 'rateLimitExceeded')
  const stranger = await sim.caught(connect('unknown').events.insert({ calendarId: 'primary', requestBody: { id: chosen() } }))
  assert.equal(stranger.status, 401)
  assert.equal((await sim.objects()).length, 0)
})
