import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'

interface LockedPackage {
  optionalDependencies?: Record<string, string>
}

it.each(['../package-lock.json', '../packages/site/package-lock.json'])(
  '%s names the packages of every platform: npm ci refuses it on all of them if one is missing',
  (file) => {
    const text = readFileSync(new URL(file, import.meta.url), 'utf8')
    const { packages } = JSON.parse(text) as { packages: Record<string, LockedPackage> }
    const wanted = Object.values(packages).flatMap(({ optionalDependencies = {} }) => Object.keys(optionalDependencies))
    expect(wanted.length).toBeGreaterThan(40)
    expect(wanted.filter((name) => !(`node_modules/${name}` in packages))).toEqual([])
  },
)
