import { setTimeout as sleep } from 'node:timers/promises'
import { quantile } from '../median.ts'
import { createOtherPods, deleteOtherPods } from '../other-pods.ts'
import { live, wrongOf } from './ats.ts'
import type { Figures, Life } from './life.ts'

export interface Scene {
  title: string
  run(life: Life): Promise<Figures>
}

const EDITS = 100
const STREAMED = 1000
const EACH_MS = 10
const KILLED = 1000
const KILLED_SECONDS = 10
const KILL_AFTER_MS = 3300
const OTHER_PODS = 5000
/** The bench creates each At, and ends its pod. */
const OWN_REQUESTS = 2
const LONG_AGO = Date.parse('2020-01-01T00:00:00Z')

/** In the order of a life: the last one ends it. */
export const scenes = {
  edit: { title: 'an edit, fresh process', run: edit },
  stream: { title: `${1000 / EACH_MS} Ats a second, due at once`, run: stream },
  'burst-200': { title: '200 Ats due at one second', run: (life) => burst(life, 200) },
  'burst-1000': { title: '1,000 Ats due at one second', run: (life) => burst(life, 1000) },
  'burst-5000': { title: '5,000 Ats due at one second', run: (life) => burst(life, 5000) },
  'edit-after': { title: 'an edit, after these Ats were deleted', run: edit },
  'edit-foreign': { title: 'an edit, beside 5,000 pods of others', run: editBesidePods },
  kill: { title: `kill -9 while ${KILLED / KILLED_SECONDS} Ats a second are due`, run: kill },
} satisfies Record<string, Scene>

async function edit(life: Life): Promise<Figures> {
  return life.measured(EDITS, EDITS, async () => {
    const times = await life.edits.times(EDITS)
    return { p50: quantile(times, 0.5), p99: quantile(times, 0.99) }
  })
}

async function editBesidePods(life: Life): Promise<Figures> {
  const { kube, namespace } = life
  await createOtherPods(kube, namespace, 0, OTHER_PODS)
  await life.calm()
  const found = await edit(life)
  await deleteOtherPods(kube, namespace, 0, OTHER_PODS)
  await life.calm()
  return found
}

async function stream(life: Life): Promise<Figures> {
  const found = await life.measured(STREAMED, STREAMED * OWN_REQUESTS, async () => {
    const began = Date.now()
    const ats = await live(
      life,
      planned('stream', STREAMED, (index) => ({ due: LONG_AGO, createAt: began + index * EACH_MS })),
    )
    const untilPod = ats.flatMap(({ sent, pods: [pod] }) => (pod === undefined ? [] : [pod - sent]))
    return { wrong: wrongOf(ats), p50: quantile(untilPod, 0.5), p99: quantile(untilPod, 0.99) }
  })
  await life.wipe()
  return found
}

async function burst(life: Life, count: number): Promise<Figures> {
  const found = await life.measured(count, count * OWN_REQUESTS, async () => {
    const due = wholeSecondIn(4 + count / 150)
    const ats = await live(
      life,
      planned(`burst-${count}`, count, () => ({ due })),
    )
    return {
      wrong: wrongOf(ats),
      lateToCome: ats.filter(({ pending = due }) => pending >= due).length,
      wall: (lastDone(ats) - due) / 1000,
    }
  })
  await life.wipe()
  return found
}

async function kill(life: Life): Promise<Figures> {
  const first = wholeSecondIn(4 + KILLED / 150)
  const last = first + (KILLED_SECONDS - 1) * 1000
  const due = (index: number) => first + Math.floor((index * KILLED_SECONDS) / KILLED) * 1000
  const ats = await live(
    life,
    planned('kill', KILLED, (index) => ({ due: due(index) })),
    async () => {
      await sleep(first + KILL_AFTER_MS - Date.now())
      await life.crash()
    },
  )
  return { wrong: wrongOf(ats), wall: (lastDone(ats) - last) / 1000 }
}

const planned = <T>(prefix: string, count: number, of: (index: number) => T): (T & { name: string })[] =>
  Array.from({ length: count }, (_, index) => ({ name: `${prefix}-${index}`, ...of(index) }))

const wholeSecondIn = (seconds: number): number => Math.ceil(Date.now() / 1000 + seconds) * 1000

const lastDone = (ats: Awaited<ReturnType<typeof live>>): number =>
  Math.max(...ats.map(({ done = Number.POSITIVE_INFINITY }) => done))
