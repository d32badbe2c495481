import { describe, expect, it } from 'vitest'
import type { KubeObject, ObjectMeta } from '#contracts'
import { RefusedError, takeOver, type Write } from '#reconcile'
import type { OwnedResource } from '#spec'
import { CONFIG_MAPS, child, createdFor, ownedByWidget, PODS, widget } from '../dispatch/objects.ts'

const claimant = { identity: 'widget', owner: widget() }
const free = { ownerReferences: [] }
const found = (metadata: Partial<ObjectMeta> = free, kind = 'ConfigMap'): KubeObject => child(kind, 'c', { metadata })
const controlledBy = (more: object) => ({ ownerReferences: [{ ...ownedByWidget(), ...more }] })

const wanting = (resource: OwnedResource): Write => {
  const object = child(resource.kind, 'c', { data: { k: 'v' } })
  if (resource.strategy !== 'Apply') return { verb: 'create', resource, object }
  return { verb: 'apply', resource, object, fingerprint: 'f', observed: undefined }
}
const taking = (object: KubeObject, resource: Partial<OwnedResource> = {}) =>
  takeOver(wanting({ ...CONFIG_MAPS, kind: object.kind, ...resource }), object, claimant)

/** Why an object is not taken over. */
function refusal(object: KubeObject, resource?: Partial<OwnedResource>): string {
  try {
    taking(object, resource)
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
