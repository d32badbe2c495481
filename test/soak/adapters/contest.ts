import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { isAlreadyExists, isNotFound, type KubeClient, resourcePath } from '#kube'
import { until } from '../../support/wait.ts'
import { type Licence, lostOf, titleOf, type Wanted, wrongOf } from './judge.ts'
import { Load, type Made, type Subject } from './load.ts'
import type { Difference, Serving, Sides } from './sides.ts'
import { ownerOf, type Ref, type Watched } from './watched.ts'

/** What two sides serve in turn. */
export interface Contest {
  /** What names the functions of Fairlead: `--adapter metacontroller`. */
  functions: readonly string[]
  subjects: readonly Subject[]
  /** The kinds of their children. */
  children: readonly Ref[]
  /** Says why it is not known what an object should have. */
  wantedOf: (made: Made, parent: KubeObject, servedBy: Serving) => Wanted | string
  /** While objects are judged, nothing fails on purpose. */
  calm?: (isCalm: boolean) => void
  /** Whether a cut-over may change children of this Reconciler. */
  mayChange?: (difference: Difference) => boolean
  licenceOf: (made: Made) => Omit<Licence, 'isAlive'>
  /** Whether a child may be another one after a change of hands from this side. */
  mayReplace?: (child: KubeObject, servedBy: Serving) => boolean
  /** Does something beside the two sides, and says what. */
  disturb?: (random: () => number) => Promise<string>
  /** What else is wrong. */
  alsoWrong?: () => string[]
  figures: () => string[][]
}

interface Given {
  contest: Contest
  kube: KubeClient
  watched: Watched
  sides: Sides
  /** Of faults; the load has one of its own, so that each has its order. */
  random: () => number
  ofLoad: () => number
  say: (line: string) => void
}

const PER_SECOND = 2
/** How long one side serves, under load, before the next change of hands. */
const SERVES_MS = 40_000
/** From one fault to the next one. */
const REST_MS = 12_000
/** All is as wanted so long after the load has paused. */
const SETTLES_MS = 180_000

/** Hands all objects over and back so often, under load, and returns what went wrong. */
export async function contend(rounds: number, given: Given): Promise<{ wrong: string[]; figures: string[][] }> {
  const { contest, kube, sides, random, ofLoad, say } = given
  const wrong = new Set<string>()
  const load = new Load(kube, ofLoad)
  const tell = (what: string) => {
    if (!wrong.has(what)) say(what)
    wrong.add(what)
  }
  let onlyStatus = 0
  await sides.startOther()
  for (const subject of contest.subjects) for (const _ of [1, 2]) await load.make(subject)
  const stop = new AbortController()
  const loading = load.until(stop.signal, contest.subjects, PER_SECOND)
  const serve = async () => {
    const until = performance.now() + SERVES_MS
    while (performance.now() < until) {
      await sleep(REST_MS * (1 / 2 + random()))
      if (contest.disturb && random() < 1 / 3) say(await contest.disturb(random))
      else {
        say(`kill -9 of ${sides.serving}`)
        await sides.kill()
      }
    }
  }
  const before: Calm = new Map()
  const settle = async () => {
    await load.pause()
    contest.calm?.(true)
    const began = performance.now()
    await until(() => wrongNow(given, load).length === 0, { timeoutMs: SETTLES_MS, leastMs: 500 }).catch(
      () => undefined,
    )
    const replaced = replacedSince(before, given, load)
    for (const one of [
      ...wrongNow(given, load),
      ...lostNow(given, load),
      ...replaced,
      ...(contest.alsoWrong?.() ?? []),
    ])
      tell(`under ${sides.serving}: ${one}`)
    say(
      `${load.made.size} objects are judged, ${((performance.now() - began) / 1000).toFixed(0)} s after the last edit`,
    )
  }
  const goOn = () => {
    contest.calm?.(false)
    load.isPaused = false
  }
  try {
    for (let round = 1; round <= rounds; round++) {
      await serve()
      await settle()
      await sides.prepare()
      for (const difference of await sides.differences()) {
        const { reconciler, kind, failed, shapes } = difference
        const mayChange = contest.mayChange?.(difference) === true
        for (const shape of shapes)
          if (shape.kind === kind && shape.what === 'change') onlyStatus++
          else if (!mayChange) tell(`diff of ${reconciler} is not empty: ${JSON.stringify(shape).slice(0, 1000)}`)
        if (failed > 0 && !mayChange) tell(`diff of ${reconciler}: ${failed} objects fail`)
      }
      goOn()
      await sides.takeOver()
      say(`round ${round}: Fairlead serves`)
      await serve()
      await settle()
      goOn()
      await sides.goBack()
      say(`round ${round}: the other one serves`)
    }
    await serve()
    await settle()
  } catch (error) {
    tell(`${error instanceof Error ? error.stack : error}`)
  }
  stop.abort()
  await loading.catch((error: unknown) => tell(`the load: ${error}`))
  const { made, edited, deleted } = load.counts
  const figures = [
    ['objects made', String(made)],
    ['edits', String(edited)],
    ['objects deleted', String(deleted)],
    ['changes of hands', String(2 * rounds)],
    ['kill -9 of a process', String(sides.kills)],
    ['differences in the status of objects alone', String(onlyStatus)],
    ...contest.figures(),
  ]
  return { wrong: [...wrong], figures }
}

function wrongNow({ contest, watched, sides }: Given, load: Load): string[] {
  const children = Map.groupBy(
    contest.children.flatMap((ref) => watched.of(ref)),
    ownerOf,
  )
  return [...load.made.values()].flatMap((made) => {
    const parent = watched.of(made.subject.ref).find(({ metadata }) => metadata.uid === made.uid)
    if (made.isDeleted) return parent ? [`${made.name} was deleted, and is still there`] : []
    if (parent === undefined) return [`${made.name} is gone, and nobody has deleted it`]
    const wanted = contest.wantedOf(made, parent, sides.serving)
    if (typeof wanted === 'string') return [`${titleOf(parent)}: ${wanted}`]
    return wrongOf(parent, wanted, children.get(made.uid) ?? [])
  })
}

/** By object: how often it had been edited when it was judged last, and the uids of its children. */
type Calm = Map<string, { edits: number; servedBy: Serving; children: Set<string | undefined> }>

/** Returns the children that are not those of before, though nobody has edited their object. */
function replacedSince(before: Calm, { contest, watched, sides }: Given, load: Load): string[] {
  const all = contest.children.flatMap((ref) => watched.of(ref))
  return [...load.made.values()].flatMap((made) => {
    const last = before.get(made.uid)
    const children = all.filter((one) => ownerOf(one) === made.uid)
    before.set(made.uid, {
      edits: made.edits,
      servedBy: sides.serving,
      children: new Set(children.map(({ metadata }) => metadata.uid)),
    })
    if (last === undefined || made.isDeleted || last.edits !== made.edits) return []
    return children
      .filter((one) => !last.children.has(one.metadata.uid) && contest.mayReplace?.(one, last.servedBy) !== true)
      .map((one) => `${titleOf(one)} of ${made.name} is another one, and nobody has edited its object`)
  })
}

const lostNow = ({ contest, watched }: Given, load: Load): string[] =>
  lostOf(watched.deletions, (owner) => {
    const made = load.made.get(owner)
    return made && { isAlive: !made.isDeleted, ...contest.licenceOf(made) }
  })

const PLURALS: Record<string, Ref> = {
  CustomResourceDefinition: { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' },
  CompositeController: { group: 'metacontroller.k8s.io', version: 'v1alpha1', resource: 'compositecontrollers' },
  DecoratorController: { group: 'metacontroller.k8s.io', version: 'v1alpha1', resource: 'decoratorcontrollers' },
  RoleBinding: { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'rolebindings' },
  ReplicaSet: { group: 'apps', version: 'v1', resource: 'replicasets' },
  Deployment: { group: 'apps', version: 'v1', resource: 'deployments' },
}
export const refOfKind = (kind: string): Ref =>
  PLURALS[kind] ?? { group: '', version: 'v1', resource: `${kind.toLowerCase()}s` }

/** Created when its kind is served, and when it is served itself. */
export async function createdOn(kube: KubeClient, object: KubeObject): Promise<void> {
  const { kind, metadata } = object
  await until(() =>
    kube.create(resourcePath(refOfKind(kind), metadata.namespace), object).then(
      () => true,
      (error: unknown) => {
        if (isAlreadyExists(error)) return true
        if (isNotFound(error)) return false
        throw error
      },
    ),
  )
  const names = object['spec'] as
    | { names?: { plural: string }; group?: string; versions?: { name: string }[] }
    | undefined
  if (kind !== 'CustomResourceDefinition' || names?.names === undefined) return
  const {
    group = '',
    versions = [],
    names: { plural: resource },
  } = names
  const path = resourcePath({ group, version: versions[0]?.name ?? '', resource })
  await until(async () => {
    for await (const _ of kube.list(path)) break
    return true
  })
}
