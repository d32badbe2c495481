import { expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { reconciler, resource } from '#sdk'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ size: z.number() }),
  status: z.object({ phase: z.enum(['Open', 'Shut']) }),
})

it('knows what was read, and which effects there are', () => {
  reconciler({
    name: 'shop',
    for: Shop,
    external: {
      read: async ({ object }) => ({ doors: object.spec.size }),
      perform(effect: { kind: 'open'; door: number } | { kind: 'shut' }, { object }) {
        expectTypeOf(object.spec.size).toEqualTypeOf<number>()
        return effect.kind
      },
    },
    reconcile({ object, external }) {
      expectTypeOf(external).toEqualTypeOf<{ doors: number }>()
      if (external.doors < object.spec.size) return { effect: { kind: 'open', door: external.doors } }
      return external.doors > 5 ? { effect: { kind: 'shut' } } : { status: { phase: 'Open' } }
    },
  })
  reconciler({
    name: 'shop',
    for: Shop,
    external: { read: () => null, perform: ({ kind }: { kind: 'open' }) => kind },
    // @ts-expect-error no such effect
    reconcile: () => ({ effect: { kind: 'close' } }),
  })
  reconciler({
    name: 'shop',
    for: Shop,
    reconcile({ external }) {
      expectTypeOf(external).toEqualTypeOf<undefined>()
      return { status: { phase: 'Shut' } }
    },
  })
})
