import assert from 'node:assert/strict'
import test from 'node:test'
import { Octokit as Rest } from '@octokit/rest'
import { Octokit } from 'octokit'
import { account, serve, token } from './sim.mjs'

const sim = await serve('github-issues')
const quiet = { debug () {}, info () {}, warn () {}, error () {} }
const connect = (Client, more) => new Client({ auth: token, baseUrl: sim.url, log: quiet, ...more })
const bundle = () => connect(Octokit)
const wish = { owner: 'o', repo: 'r', title: 'call Ann', body: 'opledger wish-1', labels: ['crm'] }

// The bundle spaces its creations out, which is of no interest for the shapes.
const soon = { throttle: { enabled: false } }

for (const [name, Client] of [['octokit', Octokit], ['@octokit/rest', Rest]]) {
  test(`${name} makes an issue and reads it back`, async () => {
    const { rest } = connect(Client, soon)
    const made = await rest.issues.create(wish)
    assert.equal(made.status, 201)
    assert.equal(made.data.labels[0].name, 'crm')
    assert.ok(made.headers['x-github-request-id'])
    const read = await rest.issues.get({ owner: 'o', repo: 'r', issue_number: made.data.number })
    assert.equal(read.data.title, 'call Ann')
    assert.equal((await rest.users.getAuthenticated()).data.login, account)
    await sim.want({ sends: 1, objects: 1 })
  })

  test(`${name} sees errors with status, message and documentation`, async () => {
    const { rest } = connect(Client, soon)
    const wrong = await sim.caught(rest.issues.create({ ...wish, title: undefined }))
    assert.equal(wrong.name, 'HttpError')
    assert.equal(wrong.status, 422)
    assert.match(wrong.message, /^Validation Failed.*https:\/\/docs\.github\.com/s)
    assert.equal(wrong.response.data.errors[0].field, 'title')
    const none = await sim.caught(rest.issues.get({ owner: 'o', repo: 'r', issue_number: 9 }))
    assert.equal(none.status, 404)
    const stranger = await sim.caught(connect(Client, { auth: 'unknown', ...soon }).rest.issues.create(wish))
    assert.equal(stranger.status, 401)
    assert.match(stranger.message, /Bad credentials/)
    assert.equal((await sim.objects()).length, 0)
  })
}

test('octokit repeats a lost answer and makes a second issue', async () => {
  await sim.rule({ do: 'lose_response', method: 'POST', nth: 1 })
  assert.equal((await bundle().rest.issues.create(wish)).status, 201)
  await sim.want({ sends: 2, objects: 2 })
})

test('octokit repeats a 500 from after the commit and makes a second issue', async () => {
  await sim.rule({ do: 'status_after_commit', method: 'POST', nth: 1 })
  assert.equal((await bundle().rest.issues.create(wish)).status, 201)
  await sim.want({ sends: 2, objects: 2 })
})

// Its pauses are one, four and nine seconds; here they are shorter.
test('octokit makes an issue of each repeat when every answer is lost', () =>
  sim.lost('octokit', () => connect(Octokit, { retry: { retryAfterBaseValue: 50 } }).rest.issues.create(wish)))

test('octokit waits as long as a rate limit says', async () => {
  await sim.rule({ do: 'rate_limit', method: 'POST', status: 429, after: '1s', times: 1 })
  await bundle().rest.issues.create(wish)
  const [refused, made] = await sim.writes()
  assert.ok(new Date(made.received_at) - new Date(refused.received_at) >= 1000)
  await sim.want({ sends: 2, objects: 1 })
})

test('@octokit/rest does not repeat a lost answer', () => sim.lost('@octokit/rest', () => connect(Rest).rest.issues.create(wish)))

test('@octokit/rest pages by the Link header through a list and a search', async () => {
  await sim.settings({ index_lag: '0s', search_lag: '0s' })
  const octokit = connect(Rest)
  for (let i = 0; i < 5; i++) await octokit.rest.issues.create({ ...wish, title: `title ${i}` })
  const numbers = (issues) => issues.map((i) => i.number)
  const list = await octokit.paginate(octokit.rest.issues.listForRepo, { owner: 'o', repo: 'r', per_page: 2 })
  assert.deepEqual(numbers(list), [5, 4, 3, 2, 1])
  const found = await octokit.paginate(octokit.rest.search.issuesAndPullRequests, { q: '"wish-1" repo:o/r', per_page: 2 })
  assert.deepEqual(numbers(found), [5, 4, 3, 2, 1])
  const comment = await octokit.rest.issues.createComment({ owner: 'o', repo: 'r', issue_number: 1, body: 'done' })
  assert.equal(comment.status, 201)
  const comments = await octokit.rest.issues.listComments({ owner: 'o', repo: 'r', issue_number: 1 })
  assert.deepEqual(comments.data.map((c) => c.body), ['done'])
})

test('@octokit/rest finds nothing while list and search are behind', async () => {
  const octokit = connect(Rest)
  await octokit.rest.issues.create(wish)
  assert.equal((await octokit.rest.issues.listForRepo({ owner: 'o', repo: 'r' })).data.length, 0)
  assert.equal((await octokit.rest.search.issuesAndPullRequests({ q: '"wish-1" repo:o/r' })).data.total_count, 0)
})
