export { readFunctionAccess } from './function-access.ts'
export { functionNamed, loadFunctions } from './functions.ts'
