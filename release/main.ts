import { join } from 'node:path'
import { buildPackage } from './build.ts'

const folder = join(import.meta.dirname, '../build/package')
try {
  const { version, models } = await buildPackage(folder)
  console.log(`fairlead ${version} is in ${folder}, with the types of ${models} kinds of Kubernetes`)
} catch (error) {
  console.error(`fairlead: ${(error as Error).message}`)
  process.exitCode = 1
}
