import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { KubeObject, ObjectMeta } from '#contracts'
import { ownershipMark, RECONCILER_ANNOTATION, RefusedError, takeOver, type Write } from '#reconcile'
import { type OwnedResource, RETAINED_FOR, retainedFor } from '#spec'
import { CONFIG_MAPS, child, createdFor, ownedByWidget, PODS, SECRETS, widget } from '../dispatch/objects.ts'

const claimant = { identity: 'widget', owner: widget() }
const free = { ownerReferences: [] }
const found = (metadata: Partial<ObjectMeta> = free, kind = 'ConfigMap'): KubeObject => child(kind, 'c', { metadata })
const controlledBy = (more: object) => ({ ownerReferences: [{ ...ownedByWidget(), ...more }] })

/** An object as the reconciler retains it for that owner. */
function retained(owner: KubeObject, identity = 'widget', kind = 'ConfigMap'): KubeObject {
  const object = found(free, kind)
  const annotations = {
    [RETAINED_FOR]: retainedFor(owner),
    [RECONCILER_ANNOTATION]: ownershipMark(identity, owner, object),
  }
  return { ...object, metadata: { ...object.metadata, annotations } }
}
const earlier = widget({ metadata: { uid: 'uid-earlier' } })

const wanting = (resource: OwnedResource, metadata: Partial<ObjectMeta> = {}): Write => {
  const object = child(resource.kind, 'c', { data: { k: 'v' }, metadata })
  if (resource.strategy !== 'Apply') return { verb: 'create', resource, object }
  return { verb: 'apply', resource, object, fingerprint: 'f', observed: undefined }
}
const taking = (object: KubeObject, resource: Partial<OwnedResource> = {}, wanted?: Partial<ObjectMeta>) =>
  takeOver(wanting({ ...CONFIG_MAPS, kind: object.kind, ...resource }, wanted), object, claimant)
/** The annotations of an object that is to be retained. */
const toRetain = { ...free, annotations: { [RETAINED_FOR]: retainedFor(widget()) } }

/** Why an object is not taken over. */
function refusal(object: KubeObject, resource?: Partial<OwnedResource>, wanted?: Partial<ObjectMeta>): string {
  try {
    taking(object, resource, wanted)
  } catch (error) {
    if (error instanceof RefusedError && error.reason === 'NameTaken') return error.message
    throw error
  }
  throw new Error('it is taken over')
}

describe('a name that is taken', () => {
  it.each<[string, KubeObject, string]>([
    [
      'nobody controls',
      found(),
      'ConfigMap default/c exists, but has no controller: have the function give what it makes another name, or own the kind with strategy Apply and adopt: true, so that the object is taken over',
    ],
    [
      'nobody controls, and which is going',
      found({ ...free, deletionTimestamp: 'now' }),
      'ConfigMap default/c exists, but has no controller, and is being deleted',
    ],
    [
      'another object controls',
      found(controlledBy({ kind: 'Gadget', name: 'g', uid: 'uid-g' })),
      'ConfigMap default/c exists, but is controlled by Gadget g: have the function give what it makes another name',
    ],
    [
      'an earlier object of that name controls',
      found(controlledBy({ uid: 'uid-earlier' })),
      'ConfigMap default/c exists, but belongs to an earlier Widget of this name: garbage collection deletes it',
    ],
    [
      'the function has retained for an earlier object of that name',
      retained(earlier),
      'ConfigMap default/c exists, but was retained for an earlier Widget of this name: have the function give what it makes another name, or own the kind with strategy Apply and return the object with retain: true, so that it is taken over',
    ],
    [
      'the function has retained for another object',
      retained(widget({ metadata: { name: 'other', uid: 'uid-other' } })),
      'ConfigMap default/c exists, but Reconciler widget retains it for Widget other: have the function give what it makes another name, or release the object: kubectl annotate --overwrite configmaps c -n default fairlead.dev/retained-for-',
    ],
    [
      'another reconciler has retained for an earlier object of that name',
      retained(earlier, 'vault'),
      'ConfigMap default/c exists, but Reconciler vault retains it for Widget w: have the function give what it makes another name, or release the object: kubectl annotate --overwrite configmaps c -n default fairlead.dev/retained-for-',
    ],
  ])('by what %s', (_, object, message) => {
    expect(refusal(object)).toBe(message)
  })

  it.each(['Namespace', 'PersistentVolumeClaim', 'CustomResourceDefinition', 'Secret', 'ConfigMap', 'Pod'])(
    'by a %s: nobody is told to delete that',
    (kind) => {
      for (const metadata of [
        free,
        { ...free, deletionTimestamp: 'now' },
        controlledBy({ kind: 'Gadget', name: 'g', uid: 'uid-g' }),
        controlledBy({ uid: 'uid-earlier' }),
        {},
      ])
        expect(refusal(found(metadata, kind))).not.toMatch(/: delete|delete (it|the|that)/)
    },
  )
})

describe('where the declaration says "adopt", an object without a controller is taken over', () => {
  const adopt = { adopt: true }

  it('in the version that was found, and the Event says so', () => {
    const object = found()
    const { write, adopted } = taking(object, adopt)
    expect(write).toMatchObject({
      verb: 'apply',
      observed: object,
      object: { data: { k: 'v' }, metadata: { uid: 'uid-c', resourceVersion: '200' } },
    })
    expect(adopted).toBe('ConfigMap default/c had no controller, and is controlled by this Widget now')
  })

  it('where somebody has a reference to it that is no controller’s', () => {
    expect(taking(found(controlledBy({ kind: 'Gadget', uid: 'uid-g', controller: false })), adopt).write.verb).toBe(
      'apply',
    )
  })

  it.each<[string, KubeObject]>([
    ['another controls', found(controlledBy({ kind: 'Gadget', name: 'g', uid: 'uid-g' }))],
    ['an earlier object of the name controls', found(controlledBy({ uid: 'uid-earlier' }))],
    ['another reconciler has created for this object', createdFor(widget(), 'other', found())],
    ['is going', found({ ...free, deletionTimestamp: 'now' })],
  ])('but not one that %s', (_, object) => {
    expect(refusal(object, adopt)).toContain('ConfigMap default/c exists, but')
  })

  it('but not under a strategy that does not change what is there', () => {
    expect(refusal(found(free, 'Pod'), { ...PODS, ...adopt })).toContain('has no controller')
  })
})

describe('what the reconciler has retained for an earlier object of that name', () => {
  it.each([
    ['is retained for the new one where it is returned so', {}, toRetain, 'is retained for'],
    ['is retained for the new one, where it may be adopted too', { adopt: true }, toRetain, 'is retained for'],
    ['is controlled by the new one where it may be adopted', { adopt: true }, {}, 'is controlled by'],
  ])('%s', (_, resource, wanted, what) => {
    const { write, adopted } = taking(retained(earlier), resource, wanted)
    expect(write.object.metadata).toMatchObject({ uid: 'uid-c', resourceVersion: '200' })
    expect(adopted).toBe(
      `ConfigMap default/c was retained for an earlier Widget of this name, and ${what} this Widget now`,
    )
  })

  it.each<[string, KubeObject, Partial<OwnedResource>, string]>([
    ['another object', retained(widget({ metadata: { name: 'other', uid: 'uid-other' } })), { adopt: true }, 'other'],
    ['an object of another kind', retained({ ...earlier, kind: 'Gadget' }), { adopt: true }, 'for Gadget w'],
    [
      'an object of another group',
      retained({ ...earlier, apiVersion: 'other.io/v1' }),
      { adopt: true },
      'retains it for Widget w',
    ],
    ['it, by another reconciler', retained(earlier, 'vault'), { adopt: true }, 'Reconciler vault retains it'],
    [
      'this very one, by another reconciler',
      retained(widget(), 'vault'),
      { adopt: true },
      'Reconciler vault created it',
    ],
    ['it, under a strategy that changes nothing', retained(earlier, 'widget', 'Pod'), PODS, 'was retained for'],
  ])('is not what was retained for %s', (_, object, resource, message) => {
    expect(refusal(object, resource, toRetain)).toContain(message)
  })

  it('keeps the values of a Secret: the function has not seen them, and may have drawn others', () => {
    const values = { password: 'b2xk', old: 'b2xk' }
    const secret = { ...retained(earlier, 'widget', 'Secret'), data: values }
    const drawn = { data: { password: 'bmV3' }, stringData: { old: 'new', more: 'new' } }
    const wanted = { ...wanting(SECRETS, toRetain), object: child('Secret', 'c', { ...drawn, metadata: toRetain }) }
    const { write } = takeOver(wanted, secret, claimant)
    expect(write.object).toMatchObject({ data: values, metadata: { uid: 'uid-c', resourceVersion: '200' } })
    expect(write.object['stringData']).toEqual({ more: 'new' })
    expect(write.fingerprint).not.toBe('f')
  })

  it('is not what has copied annotations: that is free', () => {
    const { annotations = {} } = retained(earlier).metadata
    const copy = (name: string) => child('ConfigMap', name, { metadata: { ...free, annotations } })
    expect(refusal(copy('copy'), {}, toRetain)).toContain('has no controller')
    expect(taking(copy('copy'), { adopt: true }, toRetain).adopted).toContain('had no controller')
  })
})

it('the guide to a move collects the commands that hand objects over, and no command that releases one', () => {
  const guide = readFileSync(join(import.meta.dirname, '../../docs/guides/moving.md'), 'utf8')
  const [, pattern = ''] = /grep -o '([^']+)' \| sort -u > hand-over\.sh/.exec(guide) ?? []
  const ofOthers = refusal(retained(widget({ metadata: { name: 'other', uid: 'uid-other' } })))
  const taken = [found({}, 'ConfigMap'), found({}, 'Pod')].map((one) => refusal(one, one.kind === 'Pod' ? PODS : {}))
  const messages = [taken.join('; '), ofOthers, `a write was refused: ${taken[0]}; 3 more`]
  const collected = execFileSync('grep', ['-o', pattern], { input: messages.join('\n'), encoding: 'utf8' })
  const commands = taken.map((message) => message.replace(/^.*hand the object over: /, ''))
  expect(collected.trim().split('\n')).toEqual([...commands, commands[0]])
})
