import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { EtcdCluster, etcd } from '#functions/etcd'
import { Pod, Secret } from '#sdk'
import { type ExternalModel, lawsOf, outcomeOf, simulate } from '#testing'
import { shownOutcome } from '../../../../dispatch/dry-run/dry-run.ts'
import { decide } from '../../../../functions/etcd/operator/decide.ts'
import type { SecretObject } from '../../../../functions/etcd/operator/parts.ts'
import { play } from './explore.ts'
import type { Spec } from './world.ts'

type Given = Parameters<typeof decide>[0]
type Decision = ReturnType<typeof decide>

const DAY_MS = 86_400_000
const auto: Spec = { size: 3, TLS: { auto: {} } }
const ISSUED = { phase: 'Stable', authority: 1, trusted: [1] }

const secretsIn = ({ apply = [] }: Decision): Record<string, SecretObject['data']> =>
  Object.fromEntries(
    apply.flatMap((one) => (one.kind === 'Secret' ? [[one.metadata.name, (one as SecretObject).data] as const] : [])),
  )
const textOf = (decision: Decision, secret: string, key: string): string =>
  Buffer.from(secretsIn(decision)[secret]?.[key] ?? '', 'base64').toString()
const conditionOf = ({ conditions = [] }: Decision, name: string) => conditions.find(({ type }) => type === name)

/** These Secrets have been deleted. */
const without = (given: Given, ...names: string[]): Given => ({
  ...given,
  owned: (kind: { kind: string }) =>
    given.owned(kind as never).filter(({ metadata }: SecretObject) => !names.includes(metadata.name)),
})

describe('an EtcdCluster that is its own authority', () => {
  const { world } = play({ spec: auto })
  const given = world.given

  it('issues certificates for members, the function and clients', () => {
    const decision = decide(given)
    const certificate = (secret: string, key: string) => new X509Certificate(textOf(decision, secret, key))
    const authority = certificate('ex-ca-1', 'tls.crt')
    const leaves = [
      ['ex-member-tls', 'peer.crt', 'CN=etcd-peer'],
      ['ex-member-tls', 'server.crt', 'CN=etcd-server'],
      ['ex-operator-tls', 'etcd-client.crt', 'CN=root'],
      ['ex-client-tls', 'tls.crt', 'CN=client'],
    ] as const
    for (const [secret, key, subject] of leaves) {
      const leaf = certificate(secret, key)
      expect([leaf.subject, leaf.verify(authority.publicKey), leaf.ca]).toEqual([subject, true, false])
      expect(leaf.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1', '1.3.6.1.5.5.7.3.2'])
    }
    const { subjectAltName } = certificate('ex-member-tls', 'server.crt')
    for (const name of ['*.ex.default.svc', '*.ex.default.svc.cluster.local', 'ex-client.default.svc', 'localhost'])
      expect(subjectAltName).toContain(`DNS:${name}`)
    expect(decision.status?.TLS).toMatchObject({ ...ISSUED, certificatesUntil: expect.stringMatching(/^2026-04-01/) })
  })

  it('gives the same bytes on the same state, whatever a run may draw, and asks for the time at which it issues again', () => {
    const [one, other] = [given, { ...given, secret: () => 'something else' }].map(decide)
    expect(secretsIn(other!)).toEqual(secretsIn(one!))
    const later = decide({ ...given, now: new Date(given.now.getTime() + DAY_MS) })
    expect(secretsIn(later)).toEqual(secretsIn(one!))
    const due = Date.parse(given.object.status.TLS?.issuedAt ?? '') + 60 * DAY_MS
    expect([one!.requeueAt?.getTime(), one!.requeueAfter]).toEqual([due, undefined])
  })

  it('makes deleted certificates as they were', () => {
    const deleted = ['ex-member-tls', 'ex-operator-tls', 'ex-client-tls']
    expect(secretsIn(decide(without(given, ...deleted)))).toEqual(secretsIn(decide(given)))
  })

  it('replaces a deleted authority, and leaves the certificates as they are until all trust the next', () => {
    const decision = decide(without(given, 'ex-ca-1'))
    const { 'ex-ca-1': _, ...rest } = secretsIn(decide(given))
    expect(secretsIn(decision)).toEqual(rest)
    expect(decision.status?.TLS).toMatchObject({ phase: 'Trusting', authority: 1, trusted: [1, 2] })
  })

  it('touches nothing where what could issue certificates is gone as well, and says what may be done', () => {
    const decision = decide(without(given, 'ex-ca-1', 'ex-member-tls', 'ex-operator-tls', 'ex-client-tls'))
    expect([decision.apply, conditionOf(decision, 'Degraded')?.reason]).toEqual([undefined, 'SecretsLost'])
    expect(conditionOf(decision, 'Degraded')?.message).toContain('Put the Secrets back')
  })

  it.each<[string, Spec, Spec['TLS']]>([
    ['taken away', auto, undefined],
    ['replaced by Secrets', auto, { static: { member: { peerSecret: 'p' } } }],
    ['added', { size: 3 }, { auto: {} }],
    ['put in place of Secrets', { size: 3, TLS: { static: { member: {} } } }, { auto: {} }],
  ])('stays one: TLS that is %s later is refused', (_, spec, TLS) => {
    const { given } = play({ spec }).world
    const changed = { ...given.object.spec, TLS } as Given['object']['spec']
    // No member answers without its earlier certificates.
    const decision = decide({ ...given, object: { ...given.object, spec: changed }, external: { answers: {} } })
    expect([decision.apply, conditionOf(decision, 'Degraded')?.reason]).toEqual([
      undefined,
      expect.stringMatching(/TLSDiffers|SecretMissing/),
    ])
  })

  it('puts no key into a status, a condition, an effect, an event or what a dry run shows', () => {
    const told: string[] = []
    const keys = new Set<string>()
    const subject = {
      decide(run: Given): Decision {
        const decision = decide(run)
        const { apply = [], ...others } = decision
        told.push(JSON.stringify([others, apply.filter(({ kind }) => kind !== 'Secret')]))
        told.push(JSON.stringify(shownOutcome({ apply } as never, { owned: {}, related: {} } as never)))
        for (const data of Object.values(secretsIn(decision)))
          for (const [key, text = ''] of Object.entries(data ?? {})) if (key.endsWith('.key')) keys.add(text)
        return decision
      },
    }
    const rotation = { TLS: { auto: { overlapMinutes: 1, rotation: 1 } } }
    play({
      spec: { size: 1, ...rotation },
      changes: [['rotation', (world) => world.edit({ TLS: { auto: { overlapMinutes: 1, rotation: 2 } } })]],
      subject,
    })
    expect(keys.size).toBeGreaterThan(8)
    for (const key of keys) {
      const [, line = '?'] = Buffer.from(key, 'base64').toString().split('\n')
      for (const text of told) expect(text.includes(key) || text.includes(line)).toBe(false)
    }
  })
})

describe('Secrets of an EtcdCluster', () => {
  const object = EtcdCluster.of({ metadata: { name: 'ex', namespace: 'default', uid: 'u1' }, spec: auto })
  const external: ExternalModel<typeof EtcdCluster, object> = {
    state: {},
    read: () => ({ answers: {} }),
    perform: () => null,
  }

  it.each(['ex-ca-1', 'ex-member-tls'])(
    'of another owner are not overwritten, and no member starts with them: %s',
    async (name) => {
      const theirs = Secret.of({ metadata: { name, namespace: 'default' }, data: { a: 'Yg==' } })
      const world = simulate(etcd, { objects: [object, theirs], external })
      await world.runUntilIdle()
      expect(world.list(Secret).find(({ metadata }) => metadata.name === name)?.data).toEqual({ a: 'Yg==' })
      const { conditions } = world.object?.status ?? {}
      expect(conditions).toContainEqual(expect.objectContaining({ type: 'Reconciled', reason: 'NameTaken' }))
      expect(world.list(Pod)).toEqual([])
    },
  )

  it('are made before the first member, also of the example', async () => {
    const url = new URL('../../../../functions/etcd/example-tls.yaml', import.meta.url)
    const example = parse(readFileSync(url, 'utf8')) as typeof object
    const inNamespace = { ...example, metadata: { ...example.metadata, namespace: 'default' } }
    const first = await outcomeOf(etcd, { object: inNamespace, external: { answers: {} } })
    expect([
      (first.status as Decision['status'])?.TLS?.phase,
      first.apply?.filter(({ kind }) => kind === 'Secret' || kind === 'Pod'),
    ]).toEqual(['Preparing', []])
  })

  it.each(
    lawsOf(etcd, {
      objects: [object],
      external,
      steps: [
        ['certificates are deleted', (world) => world.delete(Secret, 'ex-member-tls')],
        ['it is time for others', (world) => world.pass(61 * 86_400)],
      ],
      endOf: (world) => world.list(Secret).map(({ metadata, data }) => [metadata.name, Object.keys(data ?? {})]),
    }),
  )('%s', (_, holds) => holds())
})
