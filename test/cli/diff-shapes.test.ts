import { describe, expect, it } from 'vitest'
import type { DryRunResult } from '#dispatch'
import { type Change, changesIn, messageShape, Shapes, textOf } from '../../cli/commands/diff.ts'

const change = (index: number, more: Partial<Change> = {}): Change => ({
  what: 'change',
  kind: 'Deployment',
  object: `shop/web-${index}`,
  differences: [{ path: '.spec.containers[0].image', before: 'a:1', after: 'a:2' }],
  ...more,
})
const shapesOf = (changes: readonly Change[]) => {
  const shapes = new Shapes()
  for (const one of changes) shapes.add(one)
  return shapes.list()
}
const many = Array.from({ length: 412 }, (_, index) => index)

describe('changes of many objects, grouped by shape', () => {
  it('are one shape where the same fields change, with the first objects as examples, and the most frequent first', () => {
    const created = change(1, { what: 'create', kind: 'ConfigMap', differences: [] })
    expect(shapesOf([created, ...many.map((index) => change(index))])).toEqual([
      {
        what: 'change',
        kind: 'Deployment',
        objects: 412,
        examples: ['shop/web-0', 'shop/web-1', 'shop/web-2'],
        fields: [{ path: '.spec.containers[*].image', values: [{ before: 'a:1', after: 'a:2' }], isMore: false }],
      },
      { what: 'create', kind: 'ConfigMap', objects: 1, examples: ['shop/web-1'], fields: [] },
    ])
  })

  it('keep some of the values of a field', () => {
    const [shape] = shapesOf(many.map((index) => change(index, { differences: [{ path: '.a', after: index }] })))
    expect(shape?.fields).toEqual([{ path: '.a', values: [{ after: 0 }, { after: 1 }, { after: 2 }], isMore: true }])
  })

  it('take memory that does not depend on the number of objects, fields and values', () => {
    const long = 'x'.repeat(10_000)
    const shapes = shapesOf(
      Array.from({ length: 3000 }, (_, index) =>
        change(index, { differences: [{ path: `.data.key-${index}`, before: long, after: `${long}${index}` }] }),
      ),
    )
    expect(shapes.length).toBe(201)
    expect(JSON.stringify(shapes).length).toBeLessThan(200_000)
    expect(shapes[0]).toEqual({
      what: 'change',
      kind: 'Deployment',
      objects: 2800,
      examples: ['shop/web-200', 'shop/web-201', 'shop/web-202'],
    })
  })

  it('of conditions are one, whatever the names in their messages are and whenever they have changed', () => {
    const finish: DryRunResult['finish'] = { kind: 'done' }
    const changed = (name: string, at: string): DryRunResult => ({
      outcome: undefined,
      would: [
        {
          would: 'change',
          kind: 'Site',
          namespace: 'shop',
          name,
          differences: [
            { path: '.status.conditions[0].status', before: 'True', after: 'False' },
            { path: '.status.conditions[0].lastTransitionTime', before: '2026-01-01T00:00:00Z', after: at },
            { path: '.status.conditions[0].message', before: `${name} runs`, after: `waits for shop/${name}-db` },
            { path: '.spec.title', after: name },
          ],
        },
      ],
      finish,
    })
    const site = (name: string) => ({ apiVersion: 'a/v1', kind: 'Site', metadata: { namespace: 'shop', name } })
    const found = ['a1', 'b2'].flatMap((name, index) =>
      changesIn(site(name), changed(name, `2026-01-01T00:00:0${index}Z`)),
    )
    expect(shapesOf(found)).toMatchObject([
      {
        objects: 2,
        fields: [
          { path: '.status.conditions[*].status', values: [{ before: 'True', after: 'False' }] },
          {
            path: '.status.conditions[*].message',
            values: [{ before: 'NAME runs', after: 'waits for NAMESPACE/NAME-db' }],
          },
          { path: '.spec.title', values: [{ after: 'a1' }, { after: 'b2' }] },
        ],
      },
    ])
  })

  it('of one failure of many objects are one, whatever their names are', () => {
    const message = (name: string) =>
      messageShape(`cannot apply ConfigMap shop/${name}: ${name} is wrong`, { namespace: 'shop', name })
    expect(new Set(['web-1', 'db', 'a.b'].map(message))).toEqual(
      new Set(['cannot apply ConfigMap NAMESPACE/NAME: NAME is wrong']),
    )
  })

  it('have the last state of an object that a run would write several times', () => {
    const step = { kind: 'Site', namespace: 'a', name: 'b' }
    const result: DryRunResult = {
      outcome: {},
      would: [
        { would: 'change', ...step, differences: [{ path: '.status.a', after: 1 }] },
        { would: 'tell', type: 'Normal', reason: 'Told', message: 'm' },
        { would: 'change', ...step, differences: [{ path: '.status.a', after: 2 }] },
        { would: 'perform', effect: '{"kind":"rename"}' },
      ],
      finish: { kind: 'done' },
    }
    const site = { apiVersion: 'v1', kind: 'Site', metadata: { name: 'b', namespace: 'a' } }
    expect(changesIn(site, result)).toEqual([
      { what: 'change', kind: 'Site', object: 'a/b', differences: [{ path: '.status.a', after: 2 }] },
      { what: 'perform', kind: 'rename', object: 'a/b', differences: [] },
    ])
  })

  it('are a page', () => {
    const failed = change(7, { what: 'fail', kind: 'Site', differences: [], message: 'NAME is wrong' })
    const counts = {
      reconciler: 'site',
      kind: 'Site',
      objects: 500,
      changed: 412,
      failed: 1,
      breaking: ['v1: spec.a was string, and would be integer'],
    }
    expect(
      textOf({ ...counts, shapes: shapesOf([...many.map((index) => change(index)), failed]) }),
    ).toMatchInlineSnapshot(`
      "site: 500 objects of Site compared, 412 would change, 1 would fail
        ! v1: spec.a was string, and would be integer
        change 412 Deployment (shop/web-0, shop/web-1, shop/web-2, …)
          ~ .spec.containers[*].image: "a:1" → "a:2"
        fail for 1 Site (shop/web-7)
          NAME is wrong"
    `)
  })
})
