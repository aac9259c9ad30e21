// Jest's transform: TypeScript through ts-jest, then the built-in objects as constants of the module.
//
// Jest runs test code in a vm context. There, each use of a global name such as `Map` goes through
// an interceptor of the context, which costs a third of the CPU time of the simulation. A constant
// of the module costs nothing. So this transform begins each ES module that uses such a name with
// `const { Map } = globalThis;`, on the first line, which keeps all line numbers.
//
// Jest and ts-jest keep transformed code for each project apart, although it is the same in all of
// them: a run without a cache would transform the sources of `libs/base` once for each of the 30
// projects. So the code is kept once more for all projects, in jest's cache directory.
const { readFileSync } = require('node:fs');
const path = require('node:path');
const { hashOf, readCached } = require('./code-cache.cjs');

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

const root = path.join(__dirname, '..', '..');
const tsconfig = path.join(root, 'tsconfig.jest.json');
/** What the code depends on beside the source. */
const TOOLS = hashOf(
  ...[__filename, tsconfig, path.join(root, 'tsconfig.base.json')].map((file) =>
    readFileSync(file, 'utf8'),
  ),
  require('ts-jest/package.json').version,
  require('typescript/package.json').version,
);

/** Loaded when the first file has to be transformed: most workers find all code in the cache. */
let tsJest;
function transpile(text, file, options) {
  const { TsJestTransformer } = require('ts-jest');
  tsJest ??= new TsJestTransformer({ useESM: true, tsconfig, diagnostics: false });
  return tsJest.process(text, file, options).code;
}

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
  getCacheKey(text, file, { instrument, supportsStaticESM }) {
    return hashOf(TOOLS, file, text, String(instrument), String(supportsStaticESM));
  },
  process(text, file, options) {
    if (!file.endsWith('.ts')) return { code: withBuiltIns(text) };
    const compute = () => withBuiltIns(transpile(text, file, options));
    const { cache, cacheDirectory } = options.config;
    if (!cache) return { code: compute() };
    // Without --experimental-vm-modules, ts-jest makes CommonJS modules.
    const key = hashOf(TOOLS, file, text, String(options.supportsStaticESM));
    return { code: readCached(cacheDirectory, key, compute) };
  },
};
