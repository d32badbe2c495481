import { controllerOf, type KubeObject } from '#contracts'
import { isNamedAs, isOwnedBy, type OwnedResource, type Owner, RETAINED_FOR, retainerOf } from '#spec'
import { fingerprint } from './compare.ts'
import { RefusedError } from './errors.ts'
import { isRetained, markedBy, ownershipMark, RECONCILER_ANNOTATION } from './ownership.ts'
import { bound, type Write } from './plan.ts'
import { called } from './world.ts'

/** A reconciler that wants the name, and the owner of the object to be created. */
export interface Adopter {
  identity: string
  owner: KubeObject
}

/** The write that makes an existing object with the wanted name the reconciler's. */
export interface TakeOver {
  /** The apply, bound to the version that was found. */
  write: Write & { verb: 'apply' }
  /** The message of the Event after the write. */
  adopted: string
}

/** Throws a RefusedError, `NameTaken`, if the reconciler may not take over the object. */
export function takeOver(write: Write, found: KubeObject, adopter: Adopter): TakeOver {
  const { resource, object } = write
  if (write.verb !== 'apply' || !mayTake(write, found, adopter))
    throw new RefusedError(nameTaken(resource, found, adopter), { reason: 'NameTaken' })
  const { uid = '', resourceVersion = '' } = found.metadata
  const taken = bound(object, { uid, resourceVersion })
  const contents = isSecret(resource) ? keepingValues(taken, found) : { object: taken }
  const { kind } = adopter.owner
  const before = retainerIn(found) ? `was retained for an earlier ${kind} of this name` : 'had no controller'
  const after = isRetained(object) ? 'is retained for' : 'is controlled by'
  return {
    write: { ...write, ...contents, observed: found },
    adopted: `${called(found)} ${before}, and ${after} this ${kind} now`,
  }
}

const isSecret = ({ group, resource }: OwnedResource): boolean => group === '' && resource === 'secrets'

/**
 * Keeps the values that the Secret has. The function has not seen them and may have generated others, which would
 * replace them. It sees them in its next call, and decides then.
 */
function keepingValues(
  { stringData = {}, ...wanted }: SecretValues,
  { data = {} }: SecretValues,
): Pick<TakeOver['write'], 'object' | 'fingerprint'> {
  const added = Object.entries(stringData).filter(([key]) => !Object.hasOwn(data, key))
  const object = {
    ...wanted,
    data: { ...wanted.data, ...data },
    ...(added.length > 0 && { stringData: Object.fromEntries(added) }),
  }
  return { object, fingerprint: fingerprint(object) }
}

interface SecretValues extends KubeObject {
  data?: Record<string, string>
  stringData?: Record<string, string>
}

function mayTake({ resource, object }: Write, found: KubeObject, adopter: Adopter): boolean {
  if (controllerOf(found) !== undefined || found.metadata.deletionTimestamp !== undefined) return false
  const retainer = retainerIn(found)
  if (retainer === undefined) return resource.adopt === true
  return isEarlier(retainer, adopter) && (resource.adopt === true || isRetained(object))
}

/** The reconciler that retains an object, and the owner for which it does. */
interface Retainer extends Owner {
  identity: string
}

/** Returns undefined if the object has no annotation, or one that was copied from another object. */
function retainerIn(found: KubeObject): Retainer | undefined {
  const owner = retainerOf(found)
  const identity = owner && markedBy({ metadata: owner }, found)
  return owner && identity !== undefined ? { ...owner, identity } : undefined
}

/** Whether the same reconciler has retained the object for an earlier owner of the same name. */
const isEarlier = (retainer: Retainer, { identity, owner }: Adopter): boolean =>
  retainer.identity === identity && retainer.uid !== owner.metadata.uid && isNamedAs(retainer, owner)

function nameTaken(resource: OwnedResource, found: KubeObject, adopter: Adopter): string {
  const [whose, cure] = whoseIs(resource, found, adopter)
  const next = found.metadata.deletionTimestamp === undefined ? `: ${cure}` : ', and is being deleted'
  return `${called(found)} exists, but ${whose}${next}`
}

function whoseIs(resource: OwnedResource, found: KubeObject, adopter: Adopter): [whose: string, cure: string] {
  const { identity, owner } = adopter
  const controller = controllerOf(found)
  const retainer = retainerIn(found)
  if (controller === undefined && retainer === undefined)
    return [
      'has no controller',
      `${ANOTHER_NAME}, or own the kind with strategy Apply and adopt: true, so that the object is taken over`,
    ]
  if (isOwnedBy(found, owner)) {
    const creator = markedBy(owner, found)
    const mark = `${RECONCILER_ANNOTATION}=${ownershipMark(identity, owner, found)}`
    const handOver = `${ANOTHER_NAME}, or hand the object over: ${annotateCommand(resource, found, mark)}`
    return creator === undefined
      ? [`Reconciler ${identity} did not create it, although this ${owner.kind} controls it`, handOver]
      : [`Reconciler ${creator} created it for this ${owner.kind}`, handOver]
  }
  if (retainer !== undefined) return whoKeeps(resource, found, retainer, adopter)
  if (controller?.kind === owner.kind && controller.name === owner.metadata.name)
    return [`belongs to an earlier ${owner.kind} of this name`, 'garbage collection deletes it']
  return [`is controlled by ${controller?.kind} ${controller?.name}`, ANOTHER_NAME]
}

const ANOTHER_NAME = 'have the function give what it makes another name'

function whoKeeps(
  resource: OwnedResource,
  found: KubeObject,
  retainer: Retainer,
  adopter: Adopter,
): [whose: string, cure: string] {
  if (isEarlier(retainer, adopter))
    return [
      `was retained for an earlier ${retainer.kind} of this name`,
      `${ANOTHER_NAME}, or own the kind with strategy Apply and return the object with retain: true, so that it is taken over`,
    ]
  return [
    `Reconciler ${retainer.identity} retains it for ${retainer.kind} ${retainer.name}`,
    `${ANOTHER_NAME}, or release the object: ${annotateCommand(resource, found, `${RETAINED_FOR}-`)}`,
  ]
}

function annotateCommand({ group, resource }: OwnedResource, { metadata }: KubeObject, annotation: string): string {
  const { namespace, name } = metadata
  const where = namespace === undefined ? '' : ` -n ${namespace}`
  return `kubectl annotate --overwrite ${[resource, group].filter(Boolean).join('.')} ${name}${where} ${annotation}`
}
