import type { Reconciler } from 'fairlead'

interface Builtin {
  /** The names of its Reconcilers, which are known without loading it. */
  reconcilers: readonly string[]
  load: () => Promise<readonly Reconciler[]>
}

const BUILTINS: Readonly<Record<string, Builtin>> = {
  at: { reconcilers: ['at'], load: async () => [(await import('./at/index.ts')).at] },
  etcd: {
    reconcilers: ['etcd', 'etcd-backup', 'etcd-restore'],
    load: async () => {
      const { etcd, etcdBackup, etcdRestore } = await import('./etcd/index.ts')
      return [etcd, etcdBackup, etcdRestore]
    },
  },
  memcached: { reconcilers: ['memcached'], load: async () => [(await import('./memcached/index.ts')).memcached] },
  visitors: { reconcilers: ['visitors'], load: async () => [(await import('./visitors/index.ts')).visitors] },
}

/** Adapters: functions that serve what the objects of another framework declare. */
const ADAPTERS: Readonly<Record<string, () => Promise<readonly Reconciler[]>>> = {
  metacontroller: async () => (await import('./metacontroller/index.ts')).metacontroller,
}

/** The names that select adapters. The names of their functions begin with them. */
export const adapterNames: readonly string[] = Object.keys(ADAPTERS)

/** Returns the name that selects the adapter with this function; undefined if there is none. */
export const adapterOf = (name: string): string | undefined =>
  adapterNames.find((one) => name === one || name.startsWith(`${one}-`))

/** Loads the functions of the adapters of these names. */
export const adapters = async (names: readonly string[]): Promise<Reconciler[]> =>
  (await Promise.all(names.map(async (name) => (await ADAPTERS[name]?.()) ?? []))).flat()

/** The names that select built-in functions. A process loads, installs and runs only what is selected. */
export const builtinNames: readonly string[] = Object.keys(BUILTINS)

/** Loads the built-in functions of these names; by default, all. */
export const builtins = async (names = builtinNames): Promise<Reconciler[]> =>
  (await Promise.all(names.map(async (name) => (await BUILTINS[name]?.load()) ?? []))).flat()

/** Returns the name that selects the built-in function with this Reconciler; undefined if it is not a built-in one. */
export const builtinOf = (reconciler: string): string | undefined =>
  builtinNames.find((name) => BUILTINS[name]?.reconcilers.includes(reconciler))
