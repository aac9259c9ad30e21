// Jest's transform: TypeScript through ts-jest, then the built-in objects as constants of the module.
//
// Jest runs test code in a vm context. There, each use of a global name such as `Map` goes through
// an interceptor of the context, which costs a third of the CPU time of the simulation. A constant
// of the module costs nothing. So this transform begins each ES module that uses such a name with
// `const { Map } = globalThis;`, on the first line, which keeps all line numbers.
const { createHash } = require('node:crypto');
const { readFileSync } = require('node:fs');
const path = require('node:path');
const { TsJestTransformer } = require('ts-jest');

/** Built-in objects that no test replaces. Timers, `Date` and `fetch` are not among them. */
const BUILT_INS = [
  'Array',
  'ArrayBuffer',
  'BigInt',
  'Boolean',
  'DataView',
  'Error',
  'JSON',
  'Map',
  'Math',
  'Number',
  'Object',
  'Promise',
  'RangeError',
  'Set',
  'String',
  'Symbol',
  'TextDecoder',
  'TextEncoder',
  'TypeError',
  'Uint8Array',
  'WeakMap',
];

const THIS_FILE = createHash('sha256').update(readFileSync(__filename)).digest('hex');
const tsconfig = path.join(__dirname, '..', '..', 'tsconfig.jest.json');
const tsJest = new TsJestTransformer({ useESM: true, tsconfig, diagnostics: false });

/** Whether the file uses the name, and neither declares nor imports a thing of the same name. */
function uses(code, name) {
  const declares = new RegExp(
    `\\b(?:class|function|const|let|var|type|interface)\\s+${name}\\b|\\bimport\\b[^;'"]*[{,\\s]${name}\\b`,
  );
  return new RegExp(`(?<![\\w.$'"])${name}(?![\\w$'"])`).test(code) && !declares.test(code);
}

function withBuiltIns(code) {
  if (!/^\s*(?:import|export)\b/m.test(code)) return code; // CommonJS
  const names = BUILT_INS.filter((name) => uses(code, name));
  return names.length === 0 ? code : `const { ${names.join(', ')} } = globalThis; ${code}`;
}

module.exports = {
  getCacheKey(text, file, options) {
    const inner = file.endsWith('.ts') ? tsJest.getCacheKey(text, file, options) : text;
    return createHash('sha256').update(THIS_FILE).update(file).update(inner).digest('hex');
  },
  process(text, file, options) {
    if (!file.endsWith('.ts')) return { code: withBuiltIns(text) };
    const { code } = tsJest.process(text, file, options);
    return { code: withBuiltIns(code) };
  },
};
