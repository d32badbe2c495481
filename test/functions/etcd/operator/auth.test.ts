import { describe, expect, it } from 'vitest'
import { issueFrom, newAuthority } from '#pki'
import { Secret } from '#sdk'
import { clusterOf } from '../../../../functions/etcd/operator/cluster.ts'
import { decide } from '../../../../functions/etcd/operator/decide.ts'
import { play } from './explore.ts'
import type { Spec } from './world.ts'

type Given = Parameters<typeof decide>[0]

const validity = { now: new Date(), days: 1 }
const authority = newAuthority({ cn: 'theirs' }, validity)

/**
 * Returns a cluster at rest, with a certificate of this name in the operator's Secret, and with etcd's answer about
 * users.
 */
function rest(TLS: Spec['TLS'], auth: Spec['auth'], isAuthEnabled: boolean | undefined): Given {
  const { given } = play({ spec: { size: 3, TLS } }).world
  return {
    ...given,
    object: { ...given.object, spec: { ...given.object.spec, ...(auth && { auth }) } },
    external: { ...given.external, ...(isAuthEnabled !== undefined && { isAuthEnabled }) },
  }
}

/** Certificates in Secrets that a user has created. */
const TLS = { static: { member: { serverSecret: 'server' }, operatorSecret: 'operator' } }
function theirs(cn: string, isAuthEnabled: boolean): Given {
  const text = (value: string): string => Buffer.from(value).toString('base64')
  const { certificate } = issueFrom(authority, { subject: { cn } }, validity)
  const secretOf = (name: string, prefix: string) => {
    const keys = ['.crt', '.key', '-ca.crt'].map((suffix) => [`${prefix}${suffix}`, text(certificate)])
    return Secret.of({ metadata: { name }, data: Object.fromEntries(keys) })
  }
  const given = rest(undefined, { enabled: true }, isAuthEnabled)
  const secrets: Record<string, unknown> = {
    'spec.TLS.static.member.serverSecret': secretOf('server', 'server'),
    'spec.TLS.static.operatorSecret': secretOf('operator', 'etcd-client'),
  }
  return {
    ...given,
    object: { ...given.object, spec: { ...given.object.spec, TLS } },
    related: (({ byName = '' }: { byName?: string }) => (secrets[byName] ? [secrets[byName]] : [])) as Given['related'],
  }
}

const stuck = ({ conditions = [] }: ReturnType<typeof decide>) => {
  const found = conditions.find(({ type }) => type === 'Degraded')
  return found?.status === 'True' ? [found.reason, found.message] : undefined
}

describe('users of etcd', () => {
  const auto = { auto: {} }

  it.each<[string, Spec['auth'], boolean | undefined, kind?: string, after?: number]>([
    ['are demanded when the spec says so', { enabled: true }, false, 'enableAuth'],
    ['are demanded no more when the spec says so', { enabled: false }, true, 'disableAuth'],
    ['stay as they are where the spec says nothing', undefined, true],
    ['stay as they are when they are as the spec says', { enabled: true }, true],
    ['are not touched while etcd does not tell', { enabled: true }, undefined, undefined, 5],
  ])('%s', (_, auth, isEnabled, kind, after) => {
    const { effect, requeueAfter } = decide(rest(auto, auth, isEnabled))
    expect([effect?.kind, requeueAfter]).toEqual([kind, after])
  })

  it('are asked for of the leader, last of all', () => {
    const given = rest(auto, { enabled: true }, false)
    const { answers } = given.external
    const leader = Object.keys(answers).find((name) => answers[name]?.id === answers[name]?.leader)
    expect(decide(given).effect).toEqual({ kind: 'enableAuth', via: leader })
    const [follower = ''] = Object.keys(answers).filter((name) => name !== leader)
    const { [follower]: _, ...others } = answers
    expect(decide({ ...given, external: { ...given.external, answers: others } }).effect?.kind).not.toBe('enableAuth')
  })

  it.each([
    ['root', undefined],
    ['somebody', ['OperatorNotRoot', expect.stringContaining('CN=somebody')]],
  ])('are demanded only where the certificate of the function is root: %s', (cn, told) => {
    const decision = settled(theirs(cn, false))
    expect([decision.effect?.kind, stuck(decision)]).toEqual([told ? undefined : 'enableAuth', told])
  })

  it('that a snapshot demands, and this function does not have, are told', () => {
    const given = rest(undefined, undefined, undefined)
    const denial = 'etcdserver: user name is empty'
    const decision = decide({ ...given, external: { answers: {}, denial } })
    expect([decision.apply, stuck(decision)]).toEqual([undefined, ['UserDemanded', expect.stringContaining(denial)]])
  })
})

/** The decision on pods that are by the policy of now. */
function settled(given: Given): ReturnType<typeof decide> {
  const { policy } = clusterOf(given)
  const owned = ((kind: { kind: string }) =>
    given.owned(kind as never).map((one: { metadata: { annotations?: Record<string, string> } }) => {
      const annotations = { ...one.metadata.annotations, 'etcd.database.coreos.com/policy': policy }
      return { ...one, metadata: { ...one.metadata, annotations } }
    })) as Given['owned']
  return decide({ ...given, owned })
}
