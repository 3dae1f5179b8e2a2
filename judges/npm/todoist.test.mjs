import assert from 'node:assert/strict'
import test from 'node:test'
import { TodoistApi, TodoistRequestError } from '@doist/todoist-sdk'
import { serve, token } from './sim.mjs'

const sim = await serve('todoist')
const connect = (key) => new TodoistApi(key, { baseUrl: sim.url })
const todoist = connect(token)
const wish = (id) => todoist.addTask({ content: 'call Ann', description: 'opledger wish-1', labels: ['crm'] }, id)

test('@doist/todoist-sdk makes a task and reads it back', async () => {
  await sim.settings({ index_lag: '0s' })
  const task = await wish()
  assert.equal(task.content, 'call Ann')
  assert.deepEqual(task.labels, ['crm'])
  assert.ok(task.addedAt instanceof Date)
  assert.equal((await todoist.getTask(task.id)).description, 'opledger wish-1')
  assert.deepEqual((await todoist.getTasks()).results.map((t) => t.id), [task.id])
})

// Whether the provider keeps the request id is not known; the preset does not.
test('@doist/todoist-sdk repeats a lost answer and makes a second task', async () => {
  await sim.rule({ do: 'lose_response', method: 'POST', nth: 1 })
  await wish('k1')
  await sim.want({ sends: 2, objects: 2 })
})

test('@doist/todoist-sdk makes a task of each repeat when every answer is lost', () => sim.lost('@doist/todoist-sdk', () => wish('k1')))

test('@doist/todoist-sdk sees errors with their status', async () => {
  const stranger = await sim.caught(connect('unknown').addTask({ content: 'x' }))
  assert.ok(stranger instanceof TodoistRequestError, stranger)
  assert.equal(stranger.isAuthenticationError(), true)
  await sim.rule({ do: 'status_after_commit', method: 'POST', times: 1 })
  const err = await sim.caught(wish())
  assert.equal(err.httpStatusCode, 500)
  assert.equal((await sim.objects()).length, 1)
})
