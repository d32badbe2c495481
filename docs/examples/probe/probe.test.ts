import { admissionLawsOf, conversionLawsOf, given, lawsOf } from 'fairlead/testing'
import { describe, expect, it } from 'vitest'
import { Probe, probe } from './probe.ts'

const metadata = { name: 'shop', namespace: 'default' }
const spec = { hosts: ['a.example.com', 'b.example.com'], every: 90, http: { path: '/health' } }
const object = Probe.of({ metadata, spec })
const examples = [object, Probe.of({ metadata, spec: { hosts: ['[::1]'], every: 86_400 } })]

describe('the versions of a Probe keep the laws', () => {
  it.each(conversionLawsOf(Probe, { examples }))('%s', (_, holds) => holds())
})

describe('validate of a Probe keeps the laws', () => {
  it.each(admissionLawsOf(Probe, { examples }))('%s', (_, holds) => holds())
})

describe('a Probe keeps the laws', () => {
  it.each(lawsOf(probe, { objects: [object] }))('%s', (_, holds) => holds())
})

describe('a client of v1beta1', () => {
  it('sees the first host, and whole minutes', () =>
    expect(Probe.convert(object, 'v1beta1').spec).toEqual({ host: 'a.example.com', minutes: 2, path: '/health' }))

  it('changes what it sees, and leaves the rest', () => {
    const seen = Probe.convert(object, 'v1beta1')
    const edited = { ...seen, spec: { ...(seen.spec as object), host: 'c.example.com' } }
    expect(Probe.convert(edited, 'v1').spec).toEqual({ ...spec, hosts: ['c.example.com', 'b.example.com'] })
  })
})

describe('validate', () => {
  it.each([
    [{ hosts: ['a', 'a'] }, ['spec.hosts[1]: a is there twice']],
    [{ hosts: ['a/b', '[::1]'] }, ['spec.hosts[0]: a/b is no host']],
    [{ http: { path: 'health' } }, ['spec.http.path: it begins with /']],
    [{}, []],
  ])('of %j refuses %j', (more, refused) => {
    const { refusals } = Probe.check(Probe.of({ metadata, spec: { ...spec, ...more } }))
    expect(refusals.map(({ path, message }) => `${path}: ${message}`)).toEqual(refused)
  })

  it('names a field of the stored version to a client of v1beta1', () => {
    const old = {
      apiVersion: 'monitoring.example.com/v1beta1',
      kind: 'Probe',
      metadata,
      spec: { host: 'a/b', minutes: 1 },
    }
    expect(Probe.check(old).refusals).toMatchObject([{ path: 'spec.hosts[0]' }])
  })
})

describe('the function', () => {
  it.each([
    given('a new Probe', probe, { object }).returns({
      apply: [
        {
          spec: {
            template: {
              spec: {
                containers: [{ args: ['--every=90s', 'http://a.example.com/health', 'http://b.example.com/health'] }],
              },
            },
          },
        },
      ],
      conditions: [{ reason: 'Starting' }],
    }),
    given('an object that validate refuses', probe, {
      object: Probe.of({ metadata, spec: { ...spec, hosts: ['a', 'a'] } }),
    }).throws('spec.hosts[1]: a is there twice'),
  ])('%s', async (_, holds) => holds())
})
