import { setTimeout as sleep } from 'node:timers/promises'
import { forEachAtMost } from '#primitives'
import { cpuMsOf, residentMiBOf } from '../../support/usage.ts'
import { until } from '../../support/wait.ts'
import { quantile } from '../median.ts'
import type { Replicas, WebhookPlace } from './place.ts'
import { DEFINITION, type Side, type SideOfWebhook } from './sides.ts'
import { Site } from './site.ts'
import { pathOf, type Version, type Writes, type Written } from './writes.ts'

export interface Scene {
  side: Side
  place: WebhookPlace
  webhook: SideOfWebhook
  replicas: Replicas
  sites: Writes
  plains: Writes
  /** Of a measured phase. */
  seconds: number
  /** In the watch cache. */
  objects: number
  say: (what: string) => void
}

export type Figures = Record<string, number>

export const PER_SECOND = 100
/** These objects are written. */
export const AMONG = 200
const WARM_SECONDS = 3
const ROUNDS = 4
const EACH = 100
const AT_ONCE = 8

const timesOf = (times: readonly number[], name: string): Figures => ({
  [`${name}P50`]: quantile(times, 0.5),
  [`${name}P99`]: quantile(times, 0.99),
})

interface Calls {
  validations: number
  validationSeconds: number
  conversions: number
  conversionSeconds: number
}

/** What the API server has asked the webhook so far, by its own metrics. */
async function callsIn({ kube }: WebhookPlace): Promise<Calls> {
  const metrics = await kube.text('/metrics')
  const sum = (name: string, label: string) =>
    [...metrics.matchAll(new RegExp(`^${name}\\{.*\\b${label}.*\\} (\\S+)$`, 'gm'))].reduce(
      (all, [, value]) => all + Number(value),
      0,
    )
  const validated = `name="validate\\.${Site.resource}\\.${Site.group}"`
  const converted = `crd_name="${Site.resource}\\.${Site.group}"`
  return {
    validations: sum('apiserver_admission_webhook_request_total', validated),
    validationSeconds: sum('apiserver_admission_webhook_admission_duration_seconds_sum', validated),
    conversions: sum('apiserver_crd_conversion_webhook_duration_seconds_count', converted),
    conversionSeconds: sum('apiserver_crd_conversion_webhook_duration_seconds_sum', converted),
  }
}

/** What the API server asked while something happened. */
async function callsOf(place: WebhookPlace, happens: () => Promise<unknown>): Promise<Calls> {
  const before = await callsIn(place)
  await happens()
  const after = await callsIn(place)
  return Object.fromEntries(
    Object.entries(after).map(([name, value]) => [name, value - before[name as keyof Calls]]),
  ) as unknown as Calls
}

/** Writes with the webhook and writes without one, in turn, at 100 a second. */
export async function writes(scene: Scene): Promise<Figures> {
  const { place, replicas, sites, plains, seconds, say } = scene
  const { pid } = await replicas.alone()
  await Promise.all([sites.create(AMONG), plains.create(AMONG)])
  const options = { perSecond: PER_SECOND, versions: ['v1'] as const, among: AMONG }
  const phase = (one: Writes, each: number) => one.during(() => sleep(each * 1000), options)
  for (const one of [plains, sites]) await phase(one, WARM_SECONDS)
  const all: Record<'plain' | 'site', number[]> = { plain: [], site: [] }
  const refused: string[] = []
  const used = { calls: 0, validated: 0, cpu: 0, ms: 0 }
  for (let round = 0; round < ROUNDS; round++) {
    all.plain.push(...(await phase(plains, seconds / ROUNDS)).times)
    const cpu = cpuMsOf(pid)
    let written: Written | undefined
    const calls = await callsOf(place, async () => (written = await phase(sites, seconds / ROUNDS)))
    used.cpu += cpuMsOf(pid) - cpu
    used.calls += calls.validations + calls.conversions
    used.validated += calls.validations
    used.ms += calls.validationSeconds * 1000
    all.site.push(...(written?.times ?? []))
    refused.push(...(written?.refused ?? []))
  }
  const [plain, own] = [timesOf(all.plain, 'plain'), timesOf(all.site, 'site')]
  if (refused.length > 0) say(`refused: ${refused[0]}`)
  return {
    ...plain,
    ...own,
    addedP50: (own['siteP50'] ?? NaN) - (plain['plainP50'] ?? NaN),
    addedP99: (own['siteP99'] ?? NaN) - (plain['plainP99'] ?? NaN),
    validationMs: used.ms / used.validated,
    cpuMs: used.cpu / used.calls,
    memory: residentMiBOf(pid),
    lost: refused.length,
  }
}

/** What the API server asks about, for 100 writes of each sort. */
export async function calls(scene: Scene): Promise<Figures> {
  const { place, replicas, sites } = scene
  await replicas.alone()
  await sites.create(AMONG)
  const callsFor = (
    body: (index: number) => object,
    { part = '', isRefused = false, version = 'v1' }: { part?: string; isRefused?: boolean; version?: Version } = {},
  ): Promise<Calls> =>
    callsOf(place, () =>
      forEachAtMost(AT_ONCE, sites.names.slice(0, EACH), async (name) => {
        const path = `${pathOf('Site', version, name)}${part}`
        const patched = place.kube.patch(path, body(Number(name.split('-')[1])), 'merge')
        if (!isRefused) return void (await patched)
        await patched.then(
          () => Promise.reject(new Error(`${name}: a rule in CEL should refuse the write`)),
          () => undefined,
        )
      }),
    )
  const spec = await callsFor((index) => ({ spec: { most: 4 + index } }))
  const status = await callsFor((index) => ({ status: { tick: `${index}` } }), { part: '/status' })
  const metadata = await callsFor((index) => ({ metadata: { labels: { a: `${index}` } } }))
  const rule = await callsFor(() => ({ spec: { least: 1000 } }), { isRefused: true })
  const old = await callsFor((index) => ({ spec: { most: 5 + index } }), { version: 'v1beta1' })
  const both = await callsFor((index) => ({ spec: { most: 6 + index } }))
  return {
    specCalls: spec.validations,
    statusCalls: status.validations,
    metadataCalls: metadata.validations,
    ruleCalls: rule.validations,
    specConversions: spec.conversions,
    oldConversions: old.conversions,
    bothConversions: both.conversions,
  }
}

/** Reads of one object that is not in the cache, in the stored version and in the other one, in turn. */
export async function conversions(scene: Scene): Promise<Figures> {
  const { place, replicas, sites, seconds } = scene
  await replicas.alone()
  await sites.create(AMONG)
  const read = async (version: 'v1' | 'v1beta1', times?: number[]) => {
    const name = sites.names[Math.floor(Math.random() * AMONG)]
    const began = performance.now()
    await place.kube.get(pathOf('Site', version, name))
    times?.push(performance.now() - began)
  }
  const during = async (ms: number, stored?: number[], converted?: number[]) => {
    for (const end = performance.now() + ms; performance.now() < end; ) {
      await read('v1', stored)
      await read('v1beta1', converted)
    }
  }
  await during(WARM_SECONDS * 1000)
  const [stored, converted]: [number[], number[]] = [[], []]
  const used = await callsOf(place, () => during(seconds * 1000, stored, converted))
  const [plain, own] = [timesOf(stored, 'stored'), timesOf(converted, 'converted')]
  return {
    ...plain,
    ...own,
    addedP50: (own['convertedP50'] ?? NaN) - (plain['storedP50'] ?? NaN),
    addedP99: (own['convertedP99'] ?? NaN) - (plain['storedP99'] ?? NaN),
    conversionMs: (used.conversionSeconds * 1000) / used.conversions,
  }
}

const LOOK_MS = 150
const SHOWN = 500

/** All objects are read again, as after a change of the definition, and converted for the version that is not stored. */
export async function fill(scene: Scene): Promise<Figures> {
  const { place, replicas, sites, objects } = scene
  const { kube } = place
  const { pid } = await replicas.alone()
  await sites.create(objects)
  const before = await callsIn(place)
  const cpu = cpuMsOf(pid)
  const began = performance.now()
  await kube.patch(DEFINITION, { spec: { names: { shortNames: [`s${Date.now()}`] } } }, 'merge')
  let looks = 0
  const isFull = async () => {
    // An API server makes the cache for the first request.
    await kube.get(pathOf('Site', 'v1beta1', sites.names[0]))
    return (await callsIn(place)).conversions - before.conversions >= objects + ++looks
  }
  await until(isFull, { leastMs: LOOK_MS })
  await until(() => firstOf(scene), { leastMs: LOOK_MS })
  const took = performance.now() - began
  const after = await callsIn(place)
  const listed = await callsOf(place, async () => {
    for await (const { items } of kube.list(pathOf('Site', 'v1beta1'), { limit: SHOWN }))
      if (items.length <= SHOWN) return
  })
  return {
    seconds: took / 1000,
    conversionMs: (1000 * (after.conversionSeconds - before.conversionSeconds)) / objects,
    cpuSeconds: (cpuMsOf(pid) - cpu) / 1000,
    memory: residentMiBOf(pid),
    listCalls: listed.conversions,
  }
}

/** The first object of the cache, as soon as it has all. */
async function firstOf({ place }: Scene): Promise<boolean> {
  for await (const { type } of place.kube.watch(pathOf('Site', 'v1beta1'), { resourceVersion: '0' }))
    if (type === 'ADDED') return true
  return false
}
