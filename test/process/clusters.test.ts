import { describe, expect, it } from 'vitest'
import { ClustersFile, clustersIn, configOf } from '../../cli/process/clusters.ts'
import { readConfig } from '../../cli/process/config.ts'
import { clusterName } from '../../cli/process/inventory.ts'

const FILE = '/etc/fairlead/clusters.yaml'
const listed = (text: string) => clustersIn(text, FILE).clusters

describe('the file of clusters', () => {
  it('lists each cluster with its kubeconfig beside the file, and its name as the prefix', () => {
    expect(
      listed('clusters: [{ name: east, kubeconfig: east.conf }, { name: old, kubeconfig: /k, prefix: "" }]'),
    ).toEqual([
      { name: 'east', kubeconfig: '/etc/fairlead/east.conf', context: undefined, prefix: 'east', labels: {} },
      { name: 'old', kubeconfig: '/k', context: undefined, prefix: '', labels: {} },
    ])
  })

  it.each([
    ['', 'the file:'],
    ['clusters:', 'clusters:'],
    ['clusters: [{ name: East, kubeconfig: k }]', 'clusters.0.name: 1 to 32 lower-case'],
    ['clusters: [{ name: east, kubeconfig: k, agent: true }]', 'clusters.0.kubeconfig'],
    ['clusters: [{ name: east, context: c, agent: true }]', 'clusters.0.kubeconfig'],
    ['{ clusters: [], from: [{ secrets: { namespace: fleet } }] }', 'from.0.secrets.selector'],
    ['clusters: [{ name: east, kubeconfig: k, server: x }]', 'clusters.0: Unrecognized key: "server"'],
    ['clusters: [{ name: a, kubeconfig: k }, { name: a, kubeconfig: l, prefix: b }]', 'two have the name "a"'],
    ['clusters: [{ name: a, kubeconfig: k }, { name: b, kubeconfig: l, prefix: a }]', 'two have the prefix "a"'],
    ['clusters: [', 'are not YAML'],
    ['clusters: [{ name: a, kubeconfig: k, prefix: trigger }]', "trigger is a name of Fairlead's own subjects"],
    ['clusters: [{ name: dead, kubeconfig: k }]', 'give dead another prefix'],
  ])('%j is refused, and the message says what is wrong', (text, message) => {
    expect(() => listed(text)).toThrow(message)
    expect(() => listed(text)).toThrow(FILE)
  })

  it('that is broken is not shown: it may be a kubeconfig by mistake', () => {
    const text = 'users:\n- user: { token: secret }\n  name: [x'
    expect(() => listed(text)).toThrow(/are not YAML: [^\n]*$/)
    expect(() => listed(text)).not.toThrow('secret')
  })

  it('counts when it was read twice alike: half of it is a valid file without the other clusters', () => {
    const half = 'clusters:\n- { name: a, kubeconfig: k }\n'
    const whole = `${half}- { name: b, kubeconfig: l }\n`
    const file = new ClustersFile(FILE, clustersIn(whole, FILE))
    const names = (text: string) => file.read(text).clusters.map(({ name }) => name)
    for (const text of [whole, whole, half, whole, whole, '', whole]) expect(names(text)).toEqual(['a', 'b'])
    expect([half, half, half].map(names)).toEqual([['a', 'b'], ['a'], ['a']])
    expect(names('clusters: [')).toEqual(['a'])
    expect(() => names('clusters: [')).toThrow('are not YAML')
    expect(names('clusters: [')).toEqual(['a'])
    expect([whole, whole].map(names)).toEqual([['a'], ['a', 'b']])
  })

  it('has entries without a kubeconfig, for the cluster of the process itself', () => {
    const [own] = listed('clusters: [{ name: main, prefix: "" }]')
    const config = readConfig({ FAIRLEAD_CLUSTERS: FILE, KUBECONFIG: '/own' })
    expect(own && configOf(config, own).KUBECONFIG).toBe('/own')
  })

  it('gives each cluster streams of its own, also in a shard', () => {
    const [east, old] = listed('clusters: [{ name: east, kubeconfig: e }, { name: old, kubeconfig: o, prefix: "" }]')
    const prefixes = (env: Record<string, string>) =>
      [east, old].map((one) => one && configOf(readConfig({ FAIRLEAD_CLUSTERS: FILE, ...env }), one).FAIRLEAD_PREFIX)
    expect(prefixes({})).toEqual(['east', undefined])
    expect(prefixes({ FAIRLEAD_SHARD: 'b' })).toEqual(['east-b', 'b'])
  })

  it.each([
    ['--kubeconfig', {}, { kubeconfig: 'k' }],
    ['--context', {}, { context: 'c' }],
    ['a prefix', { FAIRLEAD_PREFIX: 'p' }, {}],
  ])('excludes %s, which each entry has', (what, env, options) => {
    expect(() => readConfig({ FAIRLEAD_CLUSTERS: FILE, ...env }, options)).toThrow(`${what} is given`)
  })
})

describe('the names of the clusters of an inventory', () => {
  it('are those of their Secrets, or shortened, and no Secret has the name that another one gets', () => {
    expect(clusterName('fleet', 'east-1a2b3c4d')).toBe('east-1a2b3c4d')
    const others = ['trigger', 'a.b', 'a'.repeat(33), 'a.name-that-is-longer-than-a-name-of-a-cluster']
    for (const name of others) {
      const shortened = clusterName('fleet', name)
      expect(() => listed(`clusters: [{ name: ${shortened}, kubeconfig: k }]`)).not.toThrow()
      expect(clusterName('fleet', shortened)).not.toBe(shortened)
    }
  })
})
