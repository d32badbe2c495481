import { join } from 'node:path'
import { buildPackage } from './build.ts'
import { buildCreatePackage } from './create.ts'

const BUILD = join(import.meta.dirname, '../build')
const [folder, create] = [join(BUILD, 'package'), join(BUILD, 'create-fairlead')]
try {
  const { manifest, models } = await buildPackage(folder)
  await buildCreatePackage(folder, manifest, create)
  console.log(`fairlead ${manifest.version}, with the types of ${models} kinds of Kubernetes: ${folder}`)
  console.log(`create-fairlead ${manifest.version}: ${create}`)
} catch (error) {
  console.error(`fairlead: ${(error as Error).message}`)
  process.exitCode = 1
}
