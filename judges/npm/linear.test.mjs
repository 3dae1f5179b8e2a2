import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import test from 'node:test'
import { AuthenticationLinearError, InvalidInputLinearError, LinearClient, RatelimitedLinearError } from '@linear/sdk'
import { account, serve, token } from './sim.mjs'

const sim = await serve('linear')
const connect = (apiKey) => new LinearClient({ apiKey, apiUrl: `${sim.url}/graphql` })
const linear = connect(token)
const wish = (id, title = 'call Ann') => linear.createIssue({ id, teamId: 'team-1', title, description: 'opledger wish-1' })

test('@linear/sdk makes an issue under a chosen id and reads it back', async () => {
  const id = randomUUID()
  const payload = await wish(id)
  assert.equal(payload.success, true)
  const issue = await payload.issue // a second request
  assert.equal(issue.id, id)
  assert.equal(issue.title, 'call Ann')
  assert.ok(issue.createdAt instanceof Date && !Number.isNaN(issue.createdAt.getTime()))
  assert.match(issue.identifier, /^[A-Z]+-\d+$/)
  assert.equal((await linear.issue(id)).description, 'opledger wish-1')
  assert.equal((await linear.organization).id, account)
  assert.ok((await linear.viewer).id)
  await sim.want({ sends: 1, objects: 1, keys: 1 })
})

test('@linear/sdk sees a taken id as its input error', async () => {
  const id = randomUUID()
  await wish(id)
  const err = await sim.caught(wish(id, 'another title'))
  assert.ok(err instanceof InvalidInputLinearError, err)
  assert.match(err.message, /^conflict on insert of Issue/i)
  assert.equal(err.raw.response.errors[0].extensions.userPresentableMessage, `Entity with id ${id} already exists`)
  await sim.want({ sends: 2, objects: 1, keys: 1 })
})

test('@linear/sdk does not repeat a lost answer', () => sim.lost('@linear/sdk', () => wish(randomUUID()), 1))

test('@linear/sdk sees errors as its types', async () => {
  assert.ok(await sim.caught(connect('lin_api_unknown').createIssue({ teamId: 't', title: 'x' })) instanceof AuthenticationLinearError)
  assert.ok(await sim.caught(linear.createIssue({ teamId: 'team-1' })) instanceof InvalidInputLinearError)
  assert.ok(await sim.caught(linear.issue('none')) instanceof InvalidInputLinearError)
  await sim.rule({ do: 'rate_limit', after: '7s', times: 1 })
  const limit = await sim.caught(wish(randomUUID()))
  assert.ok(limit instanceof RatelimitedLinearError, limit)
  assert.equal(limit.retryAfter, 7)
  assert.equal((await sim.objects()).length, 0)
})

test('@linear/sdk pages through a connection and searches', async () => {
  const made = []
  for (let i = 0; i < 5; i++) {
    const id = randomUUID()
    await wish(id, `title ${i}`)
    made.unshift(id)
  }
  const page = await linear.issues({ first: 2 })
  assert.equal(page.pageInfo.hasNextPage, true)
  while (page.pageInfo.hasNextPage) await page.fetchNext()
  assert.deepEqual(page.nodes.map((n) => n.id), made)
  const found = await linear.issues({ filter: { title: { eq: 'title 3' } } })
  assert.deepEqual(found.nodes.map((n) => n.id), [made[1]])
  assert.equal((await linear.searchIssues('wish-1')).nodes.length, 5)
  const id = randomUUID()
  assert.equal((await linear.createComment({ id, issueId: made[0], body: 'done' })).commentId, id)
  assert.deepEqual((await linear.comments({ filter: { id: { eq: id } } })).nodes.map((c) => c.body), ['done'])
})
