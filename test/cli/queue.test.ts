import { stripVTControlCharacters } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openEventStore, viewEvents } from '#events'
import { toRow } from '#inspect'
import type { Nats } from '#lab'
import type { Entry, WorkQueue } from '#queue'
import { finalizerOf, RECONCILERS } from '#spec'
import {
  type ActOptions,
  actOnKeys,
  type LsOptions,
  listQueue,
  rowTable,
  type Screen,
  showKey,
  untilDrained,
  watchQueue,
} from '../../cli/commands/queue.ts'
import { DONE, FN, freshPrefix, gate, openTestQueue, type TestQueue, until } from '../queue/support.ts'
import { command } from '../support/command.ts'
import { fairlead } from '../support/fairlead.ts'
import { startTestNats } from '../support/servers.ts'
import { silent } from '../support/silent.ts'

let nats: Nats & AsyncDisposable
beforeAll(async () => {
  nats = await startTestNats()
})
afterAll(() => nats[Symbol.asyncDispose]())

const now = () => new Date()
const LS: LsOptions = { output: 'table', limit: 100 }

/** a/late waits, a/wrong is parked, b/next is queued behind a/next. */
async function filled(queue: WorkQueue): Promise<void> {
  const worker = queue.serve({
    reconciler: FN,
    slots: 1,
    handler: async ({ key }) =>
      key === 'a.late'
        ? { kind: 'error', message: 'no\nroute \u001b[31mto host', retryAt: new Date(Date.now() + 3_600_000) }
        : { kind: 'terminal', message: 'bad spec' },
  })
  await queue.enqueue(FN, 'a.late')
  await queue.enqueue(FN, 'a.wrong')
  await until(async () => expect(await queue.depth(FN)).toEqual({ queued: 0, running: 0, waiting: 1, parked: 1 }))
  await worker.drain(1000)
  await queue.enqueue(FN, 'a.next')
  await queue.enqueue(FN, 'b.next')
}

/** The queue with the contents of EVENTS under the same prefix. */
const viewOf = ({ js, queue }: TestQueue) => ({
  queue,
  events: viewEvents(js, { prefix: queue.stream.replace(/_WORK$/, ''), log: silent }),
})

const columns = (text: string) => text.split('\n').map((line) => line.split(/ {2,}/))

describe('queue ls', () => {
  const base = { reconciler: 'at', key: 'ns.a', lane: 'high' as const, attempt: 2 }
  const time = new Date('2026-01-01T00:01:00Z')
  const since = new Date('2026-01-01T00:00:00Z')
  const later = new Date('2026-01-01T00:01:04Z')
  const entries: Record<string, [Entry, string]> = {
    'its place': [{ ...base, state: 'queued', since, position: 3, positionInNamespace: 3 }, 'high lane, place 3'],
    'its place behind other namespaces': [
      { ...base, state: 'queued', since, position: 3, positionInNamespace: 2 },
      'high lane, place 3, 2 of its namespace',
    ],
    'who runs it and for how long': [
      { ...base, state: 'running', since, owner: 'x', by: 'host-1', leaseUntil: later, dirty: true },
      'by host-1, lease 4s, changed meanwhile',
    ],
    'when it is retried and why': [
      { ...base, state: 'waiting', since, until: later, reason: 'Error', error: `e\n\u001b[2J${'x'.repeat(80)}` },
      `retry in 4s: e [2J${'x'.repeat(54)}…`,
    ],
    'its timer': [{ ...base, state: 'waiting', since, until: later, reason: 'Requeue' }, 'timer in 4s'],
    'what is wrong with it': [
      { ...base, state: 'parked', since, reason: 'Terminal', error: 'bad' },
      'until something changes: bad',
    ],
    'that it was parked by hand': [{ ...base, state: 'parked', since, reason: 'Withdrawn' }, 'by hand'],
  }
  it.each(Object.entries(entries))('shows %s', (_, [entry, detail]) => {
    const [, line] = columns(rowTable([toRow(entry)], time, 'table'))
    expect(line).toEqual(['at', 'ns', 'a', entry.state, '1m0s', '2', detail])
  })

  it('shows a key that is none of ours as it is', () => {
    const queued = { state: 'queued', since, position: 1, positionInNamespace: 1 } as const
    expect(toRow({ ...base, key: 'odd', ...queued })).toMatchObject({ name: 'odd' })
  })

  it('selects by reconciler, namespace, name and state, and says when there is more', async () => {
    await using test = await openTestQueue(nats.url, freshPrefix())
    await filled(test.queue)
    const names = async (options: Partial<LsOptions>) => {
      const rows = JSON.parse(await listQueue(viewOf(test), { ...LS, output: 'json', ...options }, now)) as {
        namespace: string
        name: string
      }[]
      return rows.map(({ namespace, name }) => `${namespace}/${name}`)
    }
    expect(await names({})).toEqual(['a/late', 'a/wrong', 'a/next', 'b/next'])
    expect(await names({ namespace: 'b' })).toEqual(['b/next'])
    expect(await names({ reconciler: FN, names: ['next'] })).toEqual(['a/next', 'b/next'])
    expect(await names({ names: ['a/next', 'wrong'] })).toEqual(['a/wrong', 'a/next'])
    expect(await names({ states: ['waiting', 'parked'] })).toEqual(['a/late', 'a/wrong'])
    expect(await listQueue(viewOf(test), { ...LS, limit: 2 }, now)).toContain('and more: --limit is 2')
    expect(await listQueue(viewOf(test), { ...LS, states: ['running'] }, now)).toContain('Nothing is')
    await expect(listQueue(viewOf(test), { ...LS, reconciler: 'nope' }, now)).rejects.toThrow(`there are: ${FN}`)
  })
})

describe('queue ls --watch', () => {
  it('tells each change in one line, and that a key has become idle', async () => {
    await using test = await openTestQueue(nats.url, freshPrefix())
    await filled(test.queue)
    const lines: string[] = []
    const stop = new AbortController()
    const screen: Screen = {
      write: (text) => void lines.push(text.slice(26).trimEnd()),
      note: () => {},
      size: undefined,
    }
    const watching = watchQueue(viewOf(test), LS, screen, now, stop.signal)
    await until(() => expect(lines).toHaveLength(4))
    expect(lines[0]).toBe(`f a/late  waiting  retry in 59m: no route [31mto host`)
    await test.queue.purge({ reconciler: FN, key: 'a.wrong' })
    await test.queue.retry({ reconciler: FN, key: 'a.late' })
    await until(() => expect(lines).toHaveLength(6))
    expect(lines.slice(4)).toEqual([
      'f a/late  queued  high lane, place 3, 2 of its namespace: no route [31mto host',
      'f a/wrong  idle',
    ])
    stop.abort()
    await watching
  })

  it('stays within the terminal', async () => {
    await using test = await openTestQueue(nats.url, freshPrefix())
    await filled(test.queue)
    let frame = ''
    const stop = new AbortController()
    const size = () => ({ rows: 6, columns: 40 })
    const screen: Screen = { write: (text) => void (frame = stripVTControlCharacters(text)), note: () => {}, size }
    const watching = watchQueue(viewOf(test), LS, screen, now, stop.signal)
    await until(() => expect(frame).toContain('2 queued, 0 running, 1 waitin'))
    const shown = frame.trimEnd().split('\n')
    expect(shown).toHaveLength(5)
    expect(shown.at(-1)).toBe('… 3 more lines')
    expect(Math.max(...shown.map(({ length }) => length))).toBeLessThanOrEqual(40)
    stop.abort()
    await watching
  })
})

describe('acting by hand', () => {
  const tell = async (queue: WorkQueue, given: Partial<ActOptions> & Pick<ActOptions, 'act'>, refuse = false) => {
    const printed: string[] = []
    const options = {
      reconciler: FN,
      keys: [],
      all: false,
      states: ['waiting', 'parked'] as const,
      output: 'text' as const,
    }
    const confirm = async () => {
      if (refuse) throw new Error('nothing was done')
    }
    const tools = { print: (text: string) => void printed.push(text), confirm, signal: new AbortController().signal }
    const well = await actOnKeys(queue, { ...options, ...given }, tools)
    return { well, printed }
  }

  it('says what came of each key, and where a name is found instead', async () => {
    await using test = await openTestQueue(nats.url, freshPrefix())
    await filled(test.queue)
    expect(await tell(test.queue, { act: 'retry', keys: ['a/late', 'wrong'], namespace: 'a' })).toEqual({
      well: true,
      printed: ['f a/late: queued', 'f a/wrong: queued'],
    })
    expect(await tell(test.queue, { act: 'park', keys: ['next'] })).toEqual({
      well: false,
      printed: ['f next: idle, nothing to park; there is a/next, b/next'],
    })
    expect(await tell(test.queue, { act: 'retry', keys: ['a/idle'] })).toEqual({
      well: false,
      printed: ['f a/idle: idle, nothing to retry; queue run runs it all the same'],
    })
    expect(await tell(test.queue, { act: 'park', keys: ['a/next'] })).toEqual({
      well: true,
      printed: ['f a/next: parked until it is retried or changes'],
    })
    const purged = await tell(test.queue, {
      act: 'purge',
      all: true,
      states: ['queued', 'waiting', 'parked'],
      output: 'json',
    })
    expect(JSON.parse(purged.printed.join(''))).toContainEqual({
      reconciler: FN,
      namespace: 'b',
      name: 'next',
      result: 'purged',
    })
    expect(await tell(test.queue, { act: 'retry', all: true })).toEqual({
      well: true,
      printed: ['Nothing of f is waiting or parked.'],
    })
  })

  it('does nothing that is not confirmed, and nothing to all keys by mistake', async () => {
    await using test = await openTestQueue(nats.url, freshPrefix())
    await filled(test.queue)
    await expect(tell(test.queue, { act: 'purge', all: true }, true)).rejects.toThrow('nothing was done')
    await expect(tell(test.queue, { act: 'purge' })).rejects.toThrow('--all')
    await expect(tell(test.queue, { act: 'purge', all: true, keys: ['a/late'] })).rejects.toThrow('give either keys')
    await expect(tell(test.queue, { act: 'purge', keys: ['a/b/c'] })).rejects.toThrow('not a key')
    expect(await test.queue.depth(FN)).toEqual({ queued: 2, running: 0, waiting: 1, parked: 1 })
  })
})

it('queue show tells all that is known of a key', async () => {
  await using test = await openTestQueue(nats.url, freshPrefix())
  await filled(test.queue)
  const show = (key: string) => showKey(viewOf(test), { reconciler: FN, key, output: 'text' }, now())
  expect(await show('a/late')).toMatch(
    /State: +waiting\n[^]*Failures: +1 in a row\n[^]*Last error: +no route \[31mto host$/,
  )
  expect(await show('b/next')).toMatch(/Place: +2 in its lane/)
  expect(await show('b/next')).not.toContain('Failures')
  await test.queue.enqueue(FN, 'c.why', { cause: 'modified ConfigMap.v1 c/settings@7' })
  expect(await show('c/why')).toMatch(/Because: +modified ConfigMap c\/settings@7$/)
  expect(await show('a/idle')).toBe('f a/idle is idle: it runs when it changes, or by queue run.')
  await expect(show('late')).rejects.toThrow('f late is idle; there is a/late')
})

describe('a key whose Reconciler does not exist', () => {
  const WIDGETS = { group: 'example.com', version: 'v1', resource: 'widgets' }

  /** Stores a Reconciler, existing or deleted, and its objects as a bridge does. */
  async function stored({ js, queue }: TestQueue, reconcilerVerb: 'added' | 'deleted') {
    const prefix = queue.stream.replace(/_WORK$/, '')
    const events = await openEventStore(js, { prefix, cluster: 'test', log: silent })
    await events.setCursor(RECONCILERS, undefined, { resourceVersion: '1', at: '2030-01-01T00:00:00Z' })
    const reconciler = { apiVersion: 'fairlead.dev/v1alpha1', kind: 'Reconciler', spec: {} }
    const named = (name: string, metadata = {}) => ({ name, uid: `uid-${name}`, resourceVersion: '1', ...metadata })
    await events.put(RECONCILERS, reconcilerVerb, { ...reconciler, metadata: named(FN) })
    await events.put(RECONCILERS, 'added', { ...reconciler, metadata: named('other') })
    const widget = (name: string, metadata: object) =>
      events.put(WIDGETS, 'added', {
        apiVersion: 'example.com/v1',
        kind: 'Widget',
        metadata: { ...named(name), namespace: 'a', ...metadata },
      })
    const deletionTimestamp = '2030-01-01T00:00:00Z'
    await widget('late', { deletionTimestamp, finalizers: ['kubernetes.io/x', finalizerOf(FN)] })
    await widget('idle', { finalizers: [finalizerOf(FN)] })
    await widget('free', { deletionTimestamp, finalizers: [finalizerOf('other')] })
  }
  const show = (test: TestQueue, key: string) => showKey(viewOf(test), { reconciler: FN, key, output: 'text' }, now())

  it('is shown with the finalizer that its object waits for', async () => {
    await using test = await openTestQueue(nats.url, freshPrefix())
    await filled(test.queue)
    await stored(test, 'deleted')
    const lines = columns(await listQueue(viewOf(test), LS, now)).map((line) => [line[2], line.at(-1)])
    expect(lines).toContainEqual(['late', 'Reconciler f does not exist; the object waits for fairlead.dev/f'])
    expect(lines).toContainEqual(['wrong', 'Reconciler f does not exist: bad spec'])
    const rows = JSON.parse(await listQueue(viewOf(test), { ...LS, output: 'json' }, now)) as object[]
    expect(rows).toContainEqual(expect.objectContaining({ name: 'late', orphaned: true, finalizer: 'fairlead.dev/f' }))
  })

  it('is told with what to do, whether it is queued or not', async () => {
    await using test = await openTestQueue(nats.url, freshPrefix())
    await filled(test.queue)
    await stored(test, 'deleted')
    const advice = (waits: string, name: string, index: number) =>
      [
        'There is no Reconciler f, and the object has a finalizer that only this Reconciler removes: fairlead.dev/f.',
        waits,
        'Create the Reconciler again (fairlead install -f FILE): its function cleans up, and then the finalizer is removed.',
        'Or remove the finalizer by hand: what the function would clean up stays.',
        `  kubectl patch widgets.example.com ${name} -n a --type json -p '[{"op":"test","path":"/metadata/finalizers/${index}","value":"fairlead.dev/f"},{"op":"remove","path":"/metadata/finalizers/${index}"}]'`,
      ].join('\n')
    const late = await show(test, 'a/late')
    expect(late).toMatch(/^Reconciler: /)
    expect(late).toContain(`\n\n${advice('It is being deleted, and waits for that finalizer.', 'late', 1)}`)
    expect(await show(test, 'a/idle')).toBe(advice('When it is deleted, it will wait for that finalizer.', 'idle', 0))
    expect(await show(test, 'a/free')).toBe('f a/free is idle: there is no Reconciler f, so nothing runs it.')
    await test.queue.removeConsumers(FN)
    expect(await show(test, 'a/idle')).toContain('There is no Reconciler f')
    await expect(show(test, 'a/free')).rejects.toThrow('no reconciler "f"')
  })

  it('is shown as ever while the Reconciler exists', async () => {
    await using test = await openTestQueue(nats.url, freshPrefix())
    await filled(test.queue)
    await stored(test, 'added')
    expect(await listQueue(viewOf(test), LS, now)).not.toContain('does not exist')
    expect(await show(test, 'a/idle')).toBe('f a/idle is idle: it runs when it changes, or by queue run.')
  })
})

it('queue drain waits for what is queued and running, and not for timers', async () => {
  await using test = await openTestQueue(nats.url, freshPrefix())
  const { queue } = test
  await filled(queue)
  const reports: string[] = []
  const drained = (timeoutSeconds: number) =>
    untilDrained(queue, { reconciler: FN, timeoutSeconds }, new AbortController().signal, (text) => reports.push(text))
  await expect(drained(0)).rejects.toThrow('not drained after 0 s: f: 2 queued, 0 running')
  const goesOn = gate()
  const worker = queue.serve({ reconciler: FN, slots: 2, handler: () => goesOn.opened.then(() => DONE) })
  const waiting = drained(30)
  await until(() => expect(reports).toContain('f: 0 queued, 2 running'))
  goesOn.open()
  expect(await waiting).toBe('f: drained; 1 waiting, 1 parked')
  await worker.drain(1000)
})

describe('the commands', () => {
  it('show, act and exit as they should', async () => {
    const prefix = freshPrefix()
    await using test = await openTestQueue(nats.url, prefix)
    await filled(test.queue)
    const queue = (...args: string[]) => command(['queue', ...args], { NATS_URL: nats.url, FAIRLEAD_PREFIX: prefix })
    // A process of its own, which ends by itself, and gives up if NATS has not accepted its connection within seconds.
    const { stdout } = await until(async () => {
      const done = await fairlead(['queue', 'ls', '-o', 'wide'], { NATS_URL: nats.url, FAIRLEAD_PREFIX: prefix })
      expect(done.code).toBe(0)
      return done
    })
    expect(columns(stdout)).toHaveLength(6)
    expect(stdout).toMatch(/^RECONCILER +NAMESPACE +NAME +STATE +SINCE +ATTEMPT +LANE +OWNER +DETAIL\n/)
    expect(await queue('park', FN, 'nothing')).toMatchObject({ code: 1, stdout: 'f nothing: idle, nothing to park\n' })
    expect(await queue('purge', FN, 'a/late')).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining('add --yes'),
    })
    expect(await queue('purge', FN, 'a/late', '--yes')).toMatchObject({ code: 0, stdout: 'f a/late: purged\n' })
  })

  it('say that nobody has made a queue there', async () => {
    const found = await command(['--prefix', 'nowhere', 'queue', 'ls'], { NATS_URL: nats.url })
    expect(found).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('no stream nowhere_WORK') })
  })
})
