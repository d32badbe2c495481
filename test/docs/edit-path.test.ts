import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { apiVersionOf, type KubeObject } from '#contracts'
import { memcached } from '#functions/memcached'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { borrowCluster } from '../support/borrowed.ts'
import { BIN, LEASHED } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'
import { architecturePage, editFilesOf } from './architecture.ts'

const EDITS = 8
/** Longer than the intervals of what a process does without a change: watches, cursors, health. */
const IDLE_MS = 7000
const NAMESPACE = 'default'

interface MemcachedLike extends KubeObject {
  spec: { size: number }
  status?: { observedGeneration?: number }
}

const fileOf = (ran: string): string => ran.split(' ')[0] ?? ''

/** Functions that run while nothing changes, those of each edit from the watch event to the end of the run, and later ones. */
let idle: Set<string>
let after: Set<string>
const edits: Set<string>[] = []

beforeAll(async () => {
  await using cluster = await borrowCluster({ nats: true })
  const kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  const preload = ['--import', new URL('./edit-path-coverage.ts', import.meta.url).href]
  const child = spawn(process.execPath, [...LEASHED, ...preload, BIN, 'up', '--install', '--builtin', 'memcached'], {
    env: {
      ...process.env,
      KUBECONFIG: cluster.kubeconfig,
      NATS_URL: cluster.nats?.url ?? '',
      LOG_LEVEL: 'debug',
      LOG_FORMAT: 'json',
    },
    stdio: ['ignore', 'inherit', 'pipe', 'ipc'],
  })
  const exited = once(child, 'exit')
  let finished = 0
  createInterface({ input: child.stderr as Readable }).on(
    'line',
    (line) => (finished += line.includes('"step":"finished"') ? 1 : 0),
  )
  const stop = new AbortController()
  const ran = async (): Promise<Set<string>> => {
    const answered = once(child, 'message', { signal: stop.signal })
    child.send('which')
    const [functions] = (await answered) as [string[]]
    return new Set(functions)
  }
  try {
    const kindIsServed = () => kube.list(resourcePath(memcached.for, NAMESPACE)).next()
    await until(kindIsServed)
    const changes = kube.watch<MemcachedLike>(resourcePath(memcached.for, NAMESPACE), { signal: stop.signal })
    await kube.create(resourcePath(memcached.for, NAMESPACE), {
      apiVersion: apiVersionOf(memcached.for),
      kind: memcached.for.kind,
      metadata: { name: 'edited' },
      spec: { size: 1 },
    })
    await settled(changes, 1)
    await sleep(IDLE_MS)
    await ran()
    await sleep(IDLE_MS)
    idle = await ran()
    for (let edit = 0; edit < EDITS; edit++) {
      const size = 2 + (edit % 4)
      await ran()
      const before = finished
      await kube.patch(resourcePath(memcached.for, NAMESPACE, 'edited'), { spec: { size } }, 'merge')
      await settled(changes, size)
      await until(async () => finished > before, { what: 'the run of the edit has finished' })
      edits.push(await ran())
    }
    // The cursor of a watch is written within a second of a change.
    await sleep(IDLE_MS)
    after = await ran()
  } finally {
    stop.abort()
    child.kill('SIGKILL')
    await exited
    await kube.close()
  }
})
afterAll(() => edits.splice(0))

describe('the files of one edit', () => {
  const page = architecturePage()
  const named = editFilesOf(page)

  it('are named on the page once each, with their number', () => {
    expect(named).toEqual([...new Set(named)])
    expect(page).toContain(`${named.length} files run code`)
  })

  it('are on the page, as far as they run at each edit and not without one', () => {
    const always = [...(edits[0] ?? [])].filter((one) => edits.every((ran) => ran.has(one)) && !idle.has(one))
    const missing = [...new Set(always.map(fileOf))].filter((file) => !named.includes(file))
    expect(missing, 'name them in "One edit, file by file", or merge what belongs together').toEqual([])
  })

  it('run, all that the page names', () => {
    const seen = new Set([...edits, after].flatMap((ran) => [...ran].map(fileOf)))
    expect(named.filter((file) => !seen.has(file))).toEqual([])
  })
})

/** Resolves when the run of the edit has written the status. */
async function settled(changes: ReturnType<KubeClient['watch']>, size: number): Promise<void> {
  for (;;) {
    const { value } = await changes.next()
    if (value === undefined) throw new Error('the watch ended')
    if (value.type === 'BOOKMARK') continue
    const { spec, status, metadata } = value.object as MemcachedLike
    if (spec.size === size && status?.observedGeneration === metadata.generation) return
  }
}
