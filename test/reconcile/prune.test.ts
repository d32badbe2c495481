import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { CONTESTED_ANNOTATION } from '../../reconcile/brake.ts'
import { parseOutcome } from '../../reconcile/outcome.ts'
import { type Plan, plan, type Write } from '../../reconcile/plan.ts'
import {
  BINDINGS,
  CONFIG_MAPS,
  child,
  configMap,
  JOBS,
  PODS,
  pod,
  SECRETS,
  secret,
  WIDGETS,
  widget,
  world,
} from '../dispatch/objects.ts'

const now = new Date('2030-01-01T00:00:00.000Z')
const GOING = '2030-01-01T00:00:00Z'

const planned = (owner: KubeObject, owned: KubeObject[], apply: object[]): Plan =>
  plan(
    { for: WIDGETS, owns: [PODS, CONFIG_MAPS, SECRETS, JOBS, BINDINGS] },
    world(owner, ...owned),
    parseOutcome({ apply }),
    {
      identity: 'widget',
      now,
      noOps: {},
      isConfidential: ({ resource }) => resource === 'secrets',
    },
  )
const deleted = ({ stages }: Plan): string[] =>
  stages.flat().flatMap(({ verb, object }) => (verb === 'delete' ? [`${object.kind} ${object.metadata.name}`] : []))

type Action = 'Hold' | 'Done' | 'Remove'
const at = (number: number, action: Action, object: object) => ({ ...object, stage: { number, action } })
const held = (object: object) => at(2, 'Hold', object)
const grant = (name: string) =>
  child('RoleBinding', name, {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'view' },
    subjects: [],
  })
const mounts = (name: string, of: string) => child('Pod', name, { spec: { volumes: [{ configMap: { name: of } }] } })

describe('what a function no longer returns is deleted, except', () => {
  it.each<[what: string, owned: KubeObject[], apply: object[], deleted: string[], owner?: KubeObject]>([
    [
      'what an object that is held names, as it is now',
      [mounts('app', 'conf-1'), child('ConfigMap', 'conf-1'), child('ConfigMap', 'conf-0'), child('Secret', 'grant')],
      [at(2, 'Hold', pod('app'))],
      ['ConfigMap conf-0', 'Secret grant'],
    ],
    [
      'what that names in turn',
      [
        child('Pod', 'app', { spec: { runsAfter: { kind: 'Job', name: 'j' } } }),
        child('Job', 'j', { apiVersion: 'batch/v1', spec: { volumes: [{ secret: { secretName: 's' } }] } }),
        child('Secret', 's'),
        child('Secret', 'other'),
      ],
      [at(2, 'Hold', pod('app'))],
      ['Secret other'],
    ],
    [
      'all of the kind of an object that is held and does not exist yet, with what they name: it may replace any of them',
      [mounts('app-v1', 'conf-1'), child('ConfigMap', 'conf-1'), child('ConfigMap', 'conf-0')],
      [at(2, 'Hold', pod('app-v2'))],
      ['ConfigMap conf-0'],
    ],
    [
      'of such an object, not those that grant, forbid or hold contents: what is taken back waits for nothing',
      [
        mounts('app', 'conf-1'),
        child('ConfigMap', 'conf-1'),
        child('ConfigMap', 'conf-0'),
        child('Secret', 'key-1'),
        grant('grant-1'),
      ],
      [at(1, 'Hold', pod('app')), ...[configMap('conf-2'), secret('key-2', {}), grant('grant-2')].map(held)],
      ['ConfigMap conf-0', 'Secret key-1', 'RoleBinding grant-1'],
    ],
    [
      'nothing because of an object that is done',
      [mounts('migrate', 'conf-1'), child('ConfigMap', 'conf-1'), child('Pod', 'old')],
      [at(2, 'Done', pod('migrate')), at(2, 'Done', pod('gone'))],
      ['ConfigMap conf-1', 'Pod old'],
    ],
    [
      'nothing of what is removed in an order, whoever names it: it was given its turn',
      [mounts('db', 'conf-1'), child('ConfigMap', 'conf-1'), child('ConfigMap', 'conf-0')],
      [at(1, 'Hold', pod('db')), at(2, 'Remove', configMap('conf-1'))],
      ['ConfigMap conf-1', 'ConfigMap conf-0'],
    ],
    [
      'the same while the object is being deleted',
      [mounts('app', 'conf-1'), child('ConfigMap', 'conf-1'), child('ConfigMap', 'conf-0')],
      [at(1, 'Hold', pod('app'))],
      ['ConfigMap conf-0'],
      widget({ metadata: { deletionTimestamp: GOING } }),
    ],
    [
      'nothing when no turn is left to come',
      [mounts('app', 'conf-2'), child('ConfigMap', 'conf-2'), child('ConfigMap', 'conf-1')],
      [{ ...pod('app'), stage: { number: 2 } }],
      ['ConfigMap conf-2', 'ConfigMap conf-1'],
    ],
  ])('%s', (_, owned, apply, expected, owner = widget()) =>
    expect(deleted(planned(owner, owned, apply))).toEqual(expected),
  )
})

describe('while the correction of an object waits in a fight', () => {
  const settings = { ...configMap('settings', { k: 'v' }), stage: { number: 2 } }
  /** Another manager has set it back to what it was before, which names a Secret. */
  const contested = (): KubeObject => {
    const [[write]] = planned(widget(), [], [settings]).stages as [[Write]]
    const { metadata } = child('ConfigMap', 'settings')
    const contest = JSON.stringify({ uid: metadata.uid, times: 9, at: now.toISOString(), fields: ['.data.k'] })
    const annotations = { ...write.object.metadata.annotations, [CONTESTED_ANNOTATION]: contest }
    return child('ConfigMap', 'settings', {
      data: { k: 'other' },
      uses: { secretName: 's' },
      metadata: { annotations, ownerReferences: write.object.metadata.ownerReferences },
    })
  }

  it('nothing of an earlier stage is removed, and what is removed of later stages goes on', () => {
    const [a, b, c] = ['a', 'b', 'c'].map((name) => configMap(name))
    const owned = ['a', 'b', 'c'].map((name) => child('ConfigMap', name))
    const apply = [at(1, 'Remove', a!), settings, at(3, 'Remove', b!), at(4, 'Remove', c!)]
    const waits = planned(widget(), [contested(), ...owned], apply)
    expect(waits.lookAt).toBeDefined()
    expect(deleted(waits)).toEqual(['ConfigMap b', 'ConfigMap c'])
    const corrected = planned(
      widget(),
      [contested(), ...owned],
      [at(2, 'Done', settings), ...apply.filter((one) => one !== settings)],
    )
    expect(deleted(corrected)).toEqual(['ConfigMap a', 'ConfigMap b', 'ConfigMap c'])
  })

  it('what it names now stays', () => {
    const result = planned(widget(), [contested(), child('Secret', 's'), child('Secret', 'other')], [settings])
    expect(deleted(result)).toEqual(['Secret other'])
  })
})
