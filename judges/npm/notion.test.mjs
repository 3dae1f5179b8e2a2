import assert from 'node:assert/strict'
import test from 'node:test'
import { APIErrorCode, APIResponseError, Client, LogLevel } from '@notionhq/client'
import { account, serve, token } from './sim.mjs'

const sim = await serve('notion')
const connect = (auth) => new Client({ auth, baseUrl: sim.url, logLevel: LogLevel.ERROR, retry: { initialRetryDelayMs: 10 } })
const notion = connect(token)
const text = (content) => [{ text: { content } }]
const mark = 'opl0123456789abcdef0123456789abcdef'
const wish = () => notion.pages.create({
  parent: { data_source_id: 'source-1' }, properties: { Name: { title: text('call Ann') }, opledger: { rich_text: text(mark) } },
})

test('@notionhq/client makes a page and finds it by its property', async () => {
  await sim.settings({ index_lag: '0s' })
  const page = await wish()
  assert.equal(page.object, 'page')
  assert.equal((await notion.pages.retrieve({ page_id: page.id })).properties.Name.title[0].text.content, 'call Ann')
  const found = await notion.dataSources.query({
    data_source_id: 'source-1', filter: { property: 'opledger', rich_text: { equals: mark } },
  })
  assert.equal(found.object, 'list')
  assert.equal(found.has_more, false)
  assert.deepEqual(found.results.map((p) => [p.id, p.properties.opledger.rich_text[0].plain_text]), [[page.id, mark]])
  assert.equal((await notion.users.me({})).id, account)
  await sim.want({ sends: 1, objects: 1 })
})

test('@notionhq/client does not repeat a lost answer', () => sim.lost('@notionhq/client', wish))

test('@notionhq/client repeats a rate limit, and no error of the server', async () => {
  await sim.rule({ do: 'rate_limit', method: 'POST', times: 2 })
  await wish()
  await sim.want({ sends: 3, objects: 1 })
  await sim.rule({ do: 'status_after_commit', method: 'POST', times: 1 })
  const err = await sim.caught(wish())
  assert.equal(err.code, APIErrorCode.InternalServerError)
  await sim.want({ sends: 4, objects: 2 })
})

test('@notionhq/client sees errors as its types', async () => {
  const stranger = await sim.caught(connect('ntn_unknown').pages.create({ parent: { data_source_id: 's' }, properties: {} }))
  assert.ok(APIResponseError.isAPIResponseError(stranger), stranger)
  assert.equal(stranger.code, APIErrorCode.Unauthorized)
  const none = await sim.caught(notion.pages.retrieve({ page_id: 'none' }))
  assert.equal(none.code, APIErrorCode.ObjectNotFound)
  assert.equal(none.status, 404)
  await sim.rule({ do: 'status', status: 400, method: 'POST', times: 1 })
  assert.equal((await sim.caught(wish())).code, APIErrorCode.ValidationError)
  assert.equal((await sim.objects()).length, 0)
})
