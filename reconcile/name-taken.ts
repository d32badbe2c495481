import { controllerOf, type KubeObject } from '#contracts'
import type { OwnedResource } from '#spec'
import { markedBy, ownershipMark, RECONCILER_ANNOTATION } from './ownership.ts'
import { called, isControlledBy } from './world.ts'

/** The reconciler that wants the name, and the object that it wants it for. */
export interface Claimant {
  identity: string
  owner: KubeObject
}

/** Why an object of that name cannot be counted as the reconciler's. */
export function nameTaken(resource: OwnedResource, found: KubeObject, claimant: Claimant): string {
  const [whose, cure] = whoseIs(resource, found, claimant)
  const next = found.metadata.deletionTimestamp === undefined ? `: ${cure}` : ', and is being deleted'
  return `${called(found)} exists, but ${whose}${next}`
}

function whoseIs(
  resource: OwnedResource,
  found: KubeObject,
  { identity, owner }: Claimant,
): [whose: string, cure: string] {
  const controller = controllerOf(found)
  const anotherName = 'have the function give what it makes another name'
  if (controller === undefined) return ['has no controller', `delete it, or ${anotherName}`]
  if (isControlledBy(found, owner)) {
    const creator = markedBy(owner, found)
    const handOver = `${anotherName}, or hand the object over: ${annotateCommand(resource, found, { identity, owner })}`
    return creator === undefined
      ? [`Reconciler ${identity} did not create it, although this ${owner.kind} controls it`, handOver]
      : [`Reconciler ${creator} created it for this ${owner.kind}`, handOver]
  }
  if (controller.kind === owner.kind && controller.name === owner.metadata.name)
    return [`belongs to an earlier ${owner.kind} of this name`, 'delete it']
  return [`is controlled by ${controller.kind} ${controller.name}`, anotherName]
}

function annotateCommand({ group, resource }: OwnedResource, found: KubeObject, { identity, owner }: Claimant): string {
  const { namespace, name } = found.metadata
  const where = namespace === undefined ? '' : ` -n ${namespace}`
  const mark = `${RECONCILER_ANNOTATION}=${ownershipMark(identity, owner, found)}`
  return `kubectl annotate --overwrite ${[resource, group].filter(Boolean).join('.')} ${name}${where} ${mark}`
}
