import {
  type Direction,
  type ResourceVersions,
  STEPS,
  stepOf,
  takeStep,
  type VersionRow,
  versionsIn,
  webhookFails,
} from '#install'
import type { KubeClient } from '#kube'
import { table, UsageError } from '#process/exit'
import { demandFunctions, type Selection } from '#process/functions'
import { openKube } from '#process/kube'
import { nameOf } from '#process/webhooks/probe'
import { isResource, type Reconciler, type Resource } from '#sdk'
import type { CommandContext } from '../options.ts'

export interface VersionsOptions extends Selection {
  next: boolean
  back: boolean
  output: 'table' | 'json'
}

/** Shows the versions of the functions' resources with the next step of each, after it has taken one step if asked to. */
export async function versions(
  name: string | undefined,
  options: VersionsOptions,
  { config, print }: CommandContext,
): Promise<void> {
  const { next, back, output } = options
  if (next && back) throw new UsageError('--next and --back are opposite directions: give one of them')
  const functions = await demandFunctions(options)
  const resources = selected(functions, name)
  await using kube = await openKube(await config())
  if (next || back) await step(kube, functions, await statesOf(kube, resources), next ? 'next' : 'back')
  const states = await statesOf(kube, resources)
  const webhook = await webhookFails(kube, functions)
  print(output === 'json' ? JSON.stringify(states.map(asJson), null, 2) : shown(states, webhook))
}

function selected(functions: readonly Reconciler[], name: string | undefined): Resource[] {
  const all = functions.map((one) => one.for).filter(isResource)
  const resources = [...new Map(all.map((one) => [nameOf(one), one])).values()]
  const found = resources.filter((one) => name === undefined || [nameOf(one), one.resource].includes(name))
  if (found.length > 0) return found
  const known = resources.map(nameOf).join(', ')
  throw new UsageError(
    `these functions define no resource${name === undefined ? '' : ` ${name}`}: ${known === '' ? 'they are for kinds of others' : `give one of ${known}`}`,
  )
}

async function statesOf(kube: KubeClient, resources: readonly Resource[]): Promise<ResourceVersions[]> {
  const states: ResourceVersions[] = []
  for (const one of resources) {
    const state = await versionsIn(kube, one)
    if (state !== undefined) states.push(state)
  }
  return states
}

async function step(
  kube: KubeClient,
  functions: readonly Reconciler[],
  states: readonly ResourceVersions[],
  direction: Direction,
): Promise<void> {
  const open = states.flatMap((state) => {
    const found = stepOf(state, direction)
    return found === undefined ? [] : [{ state, found }]
  })
  const [one, other] = open
  const says = (text: string): void => void process.stderr.write(`fairlead: ${text}\n`)
  if (one === undefined) return says('there is no step to take')
  if (other !== undefined) {
    const names = open.map(({ state }) => nameOf(state.resource)).join(', ')
    throw new UsageError(`several resources have a step: name one of ${names}`)
  }
  const { state, found } = one
  const name = nameOf(state.resource)
  if ('blocked' in found) throw new UsageError(`${name}: ${found.blocked}`)
  says(`${name}: ${found.kind}: ${STEPS[found.kind][0](found.versions.join(', '))}`)
  await takeStep(kube, functions, state, found, says)
}

const asJson = (state: ResourceVersions) => {
  const { resource, rows, objects, unreadable } = state
  const [next, back] = [stepOf(state, 'next'), stepOf(state, 'back')]
  return { resource: nameOf(resource), versions: rows, objects, unreadable, next, back }
}

const HEAD = ['RESOURCE', 'VERSION', 'SERVED', 'STORED', 'DEPRECATED', 'DECLARED', 'WRITTEN BY', 'OWNED']

function shown(states: readonly ResourceVersions[], webhook: string | undefined): string {
  if (states.length === 0) return 'No definition is in the cluster: fairlead install applies it.'
  const rows = states.flatMap(({ resource, rows: versions }) => versions.map((one) => cells(nameOf(resource), one)))
  const trouble = webhook === undefined ? [] : [`The webhook does not convert: ${webhook}`]
  return [table(HEAD, rows), ...trouble, ...states.flatMap(linesOf)].join('\n')
}

const cells = (name: string, { version, served, stored, deprecated, declared, writtenBy, owned }: VersionRow) => [
  name,
  version,
  served ? 'yes' : 'no',
  stored,
  deprecated ? 'yes' : 'no',
  declared,
  String(writtenBy),
  owned === undefined ? '-' : String(owned),
]

function linesOf(state: ResourceVersions): string[] {
  const { resource, objects, unreadable } = state
  const lines = [
    `${nameOf(resource)}: ${objects} objects`,
    ...unreadable.map((one) => `  ${one.objects} cannot be shown as ${one.version}, such as ${one.such}`),
  ]
  const next = stepOf(state, 'next')
  if (next === undefined) return [...lines, '  it is as declared: there is no next step']
  if ('blocked' in next) return [...lines, `  no step: ${next.blocked}`]
  const [does, back] = STEPS[next.kind]
  return [...lines, `  --next: ${next.kind}: ${does(next.versions.join(', '))}`, `  the way back: ${back}`]
}
