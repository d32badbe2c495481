import { controllerOf, type KubeObject } from '#contracts'
import type { OwnedResource } from '#spec'
import { RefusedError } from './errors.ts'
import { markedBy, ownershipMark, RECONCILER_ANNOTATION } from './ownership.ts'
import { bound, type Write } from './plan.ts'
import { called, isControlledBy } from './world.ts'

/** The reconciler that wants the name, and the object that it wants it for. */
export interface Claimant {
  identity: string
  owner: KubeObject
}

/** How an object that has the wanted name becomes the reconciler's. */
export interface TakeOver {
  /** Bound to the version that was found. */
  write: Write & { verb: 'apply' }
  /** What the Event says once it is written. */
  adopted: string
}

/** Throws a RefusedError, `NameTaken`, when the object may not become the reconciler's. */
export function takeOver(write: Write, found: KubeObject, claimant: Claimant): TakeOver {
  const { resource } = write
  if (write.verb !== 'apply' || resource.adopt !== true || !isFree(found))
    throw new RefusedError(nameTaken(resource, found, claimant), { reason: 'NameTaken' })
  const { uid = '', resourceVersion = '' } = found.metadata
  return {
    write: { ...write, observed: found, object: bound(write.object, { uid, resourceVersion }) },
    adopted: `${called(found)} had no controller, and is controlled by this ${claimant.owner.kind} now`,
  }
}

const isFree = (found: KubeObject): boolean =>
  controllerOf(found) === undefined && found.metadata.deletionTimestamp === undefined

function nameTaken(resource: OwnedResource, found: KubeObject, claimant: Claimant): string {
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
  if (controller === undefined)
    return [
      'has no controller',
      `${anotherName}, or own the kind with strategy Apply and adopt: true, so that the object is taken over`,
    ]
  if (isControlledBy(found, owner)) {
    const creator = markedBy(owner, found)
    const handOver = `${anotherName}, or hand the object over: ${annotateCommand(resource, found, { identity, owner })}`
    return creator === undefined
      ? [`Reconciler ${identity} did not create it, although this ${owner.kind} controls it`, handOver]
      : [`Reconciler ${creator} created it for this ${owner.kind}`, handOver]
  }
  if (controller.kind === owner.kind && controller.name === owner.metadata.name)
    return [`belongs to an earlier ${owner.kind} of this name`, 'garbage collection deletes it']
  return [`is controlled by ${controller.kind} ${controller.name}`, anotherName]
}

function annotateCommand({ group, resource }: OwnedResource, found: KubeObject, { identity, owner }: Claimant): string {
  const { namespace, name } = found.metadata
  const where = namespace === undefined ? '' : ` -n ${namespace}`
  const mark = `${RECONCILER_ANNOTATION}=${ownershipMark(identity, owner, found)}`
  return `kubectl annotate --overwrite ${[resource, group].filter(Boolean).join('.')} ${name}${where} ${mark}`
}
