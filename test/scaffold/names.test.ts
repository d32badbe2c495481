import { describe, expect, it } from 'vitest'
import { namesOf, projectName } from '#scaffold'
import { sampleOf, typeOf } from '../../packages/scaffold/existing.ts'

describe('the names of a kind', () => {
  it.each([
    ['Website', 'websites'],
    ['Proxy', 'proxies'],
    ['Gateway', 'gateways'],
    ['Mesh', 'meshes'],
    ['Class2', 'class2s'],
  ])('%s has the plural %s', (kind, plural) => {
    expect(namesOf({ kind, group: 'example.com' })).toMatchObject({ plural, singular: kind.toLowerCase() })
  })

  it.each([
    [{ kind: 'website', group: 'example.com' }, '"website" is not a kind'],
    [{ kind: 'Web-Site', group: 'example.com' }, 'letters and digits'],
    [{ kind: 'Class', group: 'example.com' }, 'class is a word of TypeScript'],
    [{ kind: 'Website', group: 'example' }, '"example" is not an API group'],
    [{ kind: 'Website', group: 'Example.com' }, 'not an API group'],
    [{ kind: 'Website', group: 'example.com', plural: 'Web Sites' }, '"Web Sites" is not a plural'],
  ])('%j is refused, with the way to mend it', (given, message) => {
    expect(() => namesOf(given)).toThrow(message)
  })

  it('a project has the name of its folder, as npm takes it', () => {
    expect(projectName('My Operator!')).toBe('my-operator')
    expect(() => projectName('…')).toThrow('cannot be the name of a project')
  })
})

describe('types of a schema', () => {
  it.each([
    [{ type: 'string' }, 'string'],
    [{ type: 'integer', nullable: true }, 'number | null'],
    [{ enum: ['a', 'b'] }, '"a" | "b"'],
    [{ type: 'array', items: { enum: ['a', 'b'] } }, '("a" | "b")[]'],
    [{ 'x-kubernetes-int-or-string': true }, 'number | string'],
    [{ type: 'object', additionalProperties: { type: 'boolean' } }, 'Record<string, boolean>'],
    [{ type: 'object', properties: { a: { type: 'string' } } }, '{\n  a?: string\n}'],
    [{ type: 'object', properties: { 'a-b': { type: 'number', default: 1 } } }, '{\n  "a-b": number\n}'],
    [{ type: 'object', 'x-kubernetes-preserve-unknown-fields': true }, 'Record<string, unknown>'],
    [{}, 'unknown'],
  ])('%j is %s', (schema, type) => expect(typeOf(schema)).toBe(type))

  it('a description becomes a comment, which it cannot end', () => {
    const schema = { type: 'object', properties: { a: { type: 'string', description: 'x */ y\nz' } } }
    expect(typeOf(schema)).toBe('{\n  /** x * / y z */\n  a?: string\n}')
  })

  it('an example has what is required', () => {
    const properties = { a: { type: 'integer', minimum: 3 }, b: { type: 'string' }, c: { enum: ['x'] } }
    expect(sampleOf({ type: 'object', required: ['a', 'c'], properties })).toEqual({ a: 3, c: 'x' })
  })
})
