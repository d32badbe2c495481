import { hash } from 'node:crypto'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  childrenFilter,
  cursorSubject,
  decodeSubjectPart,
  encodeSubjectPart,
  identityFilter,
  keyOf,
  objectFilter,
  objectSubject,
  parseCursorSubject,
  parseKey,
  parseObjectSubject,
  SubjectError,
} from '#events'

const sha256 = (text: string): string => hash('sha256', text)

const anyName = fc.oneof(
  fc.string({ unit: 'grapheme', minLength: 1 }),
  fc.constantFrom(
    '_',
    '__',
    '%5F',
    'a.b',
    'system:node',
    '*',
    '>',
    'a b',
    '~',
    'ats~x',
    'kube-root-ca.crt',
    'é',
    '😀',
    '.',
  ),
)
const maybe = fc.option(anyName, { nil: undefined })
/** Each needs more than one token may have; many have the same beginning. */
const longName = fc
  .tuple(fc.constantFrom('', 'x', ':', '😀', 'é_'), fc.string({ unit: 'grapheme' }), fc.nat(4000))
  .map(([stem, end, more]) => `${(stem === '' ? 'a' : stem).repeat(800 + more)}${end}`)
const anyRef = fc.record({ group: fc.oneof(fc.constant(''), anyName), version: anyName, resource: anyName })
/** Names of any length, since the API server does not validate the names in owner references. */
const uncheckedName = fc.oneof(anyName, longName)
const anyOwner = fc.option(fc.record({ resource: anyName, name: anyName }), { nil: undefined })
const anyParts = fc.record({ ref: anyRef, namespace: maybe, owner: anyOwner, name: anyName })

describe('a Kubernetes name as a NATS token', () => {
  it('comes back as it was', () => {
    fc.assert(
      fc.property(anyName, (name) => {
        expect(decodeSubjectPart(encodeSubjectPart(name))).toBe(name)
      }),
    )
  })

  it('is one token that NATS takes literally', () => {
    fc.assert(
      fc.property(uncheckedName, (name) => {
        expect(encodeSubjectPart(name)).toMatch(/^(?!_$)[A-Za-z0-9_%=-]{1,768}$/)
      }),
    )
  })

  it('is the only token that decodes to that name', () => {
    const token = fc.stringMatching(/^[A-Za-z0-9_.~%=-]{1,12}$/)
    const hashed = fc.stringMatching(/^[ab%~_.:]{1,3}(=|%|%25)[0-9a-f]{64}$/)
    fc.assert(
      fc.property(fc.oneof(token, hashed, uncheckedName), (text) => {
        const name = nameIn(text)
        fc.pre(name !== undefined)
        expect(encodeSubjectPart(name)).toBe(text)
      }),
    )
  })

  it('never equals the token of another name', () => {
    fc.assert(
      fc.property(uncheckedName, uncheckedName, (a, b) => {
        expect(encodeSubjectPart(a) === encodeSubjectPart(b)).toBe(a === b)
      }),
    )
  })

  it('says the beginning of what is too long for one, and the whole to nobody but the same name', () => {
    fc.assert(
      fc.property(longName, (name) => {
        const token = encodeSubjectPart(name)
        const shown = decodeSubjectPart(token)
        expect(encodeSubjectPart(shown)).toBe(token)
        expect(name.startsWith(shown.slice(0, shown.lastIndexOf('%')))).toBe(true)
        expect(shown).toMatch(/^[^]{31,32}%[0-9a-f]{64}$/)
      }),
    )
  })

  it('is never shortened where Kubernetes checks the name', () => {
    const dns = fc.stringMatching(/^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$/)
    fc.assert(
      fc.property(dns, (name) => {
        expect(decodeSubjectPart(encodeSubjectPart(name))).toBe(name)
      }),
    )
    for (const char of 'a.:-_ ') expect(decodeSubjectPart(encodeSubjectPart(char.repeat(253)))).toBe(char.repeat(253))
  })

  it.each([
    ['default', 'default'],
    ['kube-root-ca.crt', 'kube-root-ca%2Ecrt'],
    ['system:controller:x', 'system%3Acontroller%3Ax'],
    ['_', '%5F'],
    ['a b*>', 'a%20b%2A%3E'],
    ['日', '%E6%97%A5'],
  ])('writes %j as %j', (name, token) => expect(encodeSubjectPart(name)).toBe(token))

  it('has at most 768 characters: the first 32 of a longer one, never half of one, and the SHA-256 of all', () => {
    const emoji = `${'x'.repeat(31)}${'😀'.repeat(99)}`
    expect(encodeSubjectPart('x'.repeat(768))).toBe('x'.repeat(768))
    expect(encodeSubjectPart('x'.repeat(769))).toBe(`${'x'.repeat(32)}=${sha256('x'.repeat(769))}`)
    expect(encodeSubjectPart(':'.repeat(257))).toBe(`${'%3A'.repeat(32)}=${sha256(':'.repeat(257))}`)
    expect(encodeSubjectPart(emoji)).toBe(`${'x'.repeat(31)}=${sha256(emoji)}`)
  })

  it.each(['', '\ud800'])('refuses %j, which no object is called', (name) => {
    expect(() => encodeSubjectPart(name)).toThrow(SubjectError)
  })
})

describe('the subject of an object', () => {
  it('says everything that it was made of', () => {
    fc.assert(
      fc.property(anyParts, (parts) => {
        expect(parseObjectSubject(objectSubject(parts))).toEqual(parts)
      }),
    )
  })

  it('is covered by the filters of its identity, its owner and its resource', () => {
    fc.assert(
      fc.property(anyParts, (parts) => {
        const subject = objectSubject(parts)
        const { ref, namespace, owner, name } = parts
        const filters = [
          identityFilter(parts),
          objectFilter({}),
          objectFilter({ ref }),
          objectFilter({ name, ...(namespace === undefined ? {} : { namespace }) }),
          ...(owner ? [childrenFilter(ref, namespace, owner)] : []),
        ]
        for (const filter of filters) expect(covers(filter, subject), `${filter} ${subject}`).toBe(true)
      }),
    )
  })

  it('is short enough for a line of the NATS protocol, whatever the names', () => {
    const ref = { group: '.'.repeat(253), version: 'v'.repeat(63), resource: 'r'.repeat(63) }
    const owner = fc.record({ resource: fc.constant(ref.resource), name: uncheckedName })
    fc.assert(
      fc.property(owner, uncheckedName, (owner, name) => {
        expect(objectSubject({ ref, namespace: 'n'.repeat(63), owner, name }).length).toBeLessThan(3000)
      }),
    )
  })

  it('has the core group, no namespace and no owner as _', () => {
    const subject = objectSubject({
      ref: { group: '', version: 'v1', resource: 'nodes' },
      namespace: undefined,
      owner: undefined,
      name: 'a.b',
    })
    expect(subject).toBe('k8s._.v1.nodes._._.a%2Eb')
  })

  it('finds the children of a cluster-scoped owner in every namespace', () => {
    const pods = { group: '', version: 'v1', resource: 'pods' }
    expect(childrenFilter(pods, undefined, { resource: 'fleets', name: 'x' })).toBe('k8s._.v1.pods.*.fleets~x.*')
    expect(childrenFilter(pods, 'ns', { resource: 'fleets', name: 'x' })).toBe('k8s._.v1.pods.ns.fleets~x.*')
  })

  it.each([
    'k8s._.v1.pods.ns._',
    'k8s._.v1.pods.ns._.a.b',
    'other._.v1.pods.ns._.a',
    'k8s._.v1.pods.ns.x.a',
    'k8s._._.pods.ns._.a',
  ])('is not %j', (subject) => expect(() => parseObjectSubject(subject)).toThrow(SubjectError))
})

describe('a queue key', () => {
  it('says namespace and name', () => {
    fc.assert(
      fc.property(maybe, anyName, (namespace, name) => {
        expect(parseKey(keyOf(namespace, name))).toEqual({ namespace, name })
      }),
    )
  })

  it('is the same for the name that it shows, however long the name was', () => {
    fc.assert(
      fc.property(maybe, uncheckedName, (namespace, name) => {
        const key = keyOf(namespace, name)
        expect(keyOf(namespace, parseKey(key).name)).toBe(key)
      }),
    )
  })

  it.each(['a', 'a.b.c', '.b', 'a.', '_._'])('is not %j', (key) => expect(() => parseKey(key)).toThrow(SubjectError))
})

describe('the subject of a cursor', () => {
  it('says resource and scope', () => {
    fc.assert(
      fc.property(anyRef, maybe, (ref, scope) => {
        expect(parseCursorSubject(cursorSubject(ref, scope))).toEqual({ ref, scope })
      }),
    )
  })
})

function nameIn(text: string): string | undefined {
  try {
    return decodeSubjectPart(text)
  } catch (error) {
    if (error instanceof SubjectError) return undefined
    throw error
  }
}

/** As nats-server matches, for filters whose only wildcard is `*`. */
const covers = (filter: string, subject: string): boolean =>
  new RegExp(
    `^${filter
      .split('.')
      .map((token) => (token === '*' ? '[^.]+' : token.replaceAll(/[^\w]/g, '\\$&')))
      .join('\\.')}$`,
  ).test(subject)
