import nx from '@nx/eslint-plugin';
import jsoncParser from 'jsonc-eslint-parser';
import { createTypeScriptImportResolver } from 'eslint-import-resolver-typescript';
import { importX } from 'eslint-plugin-import-x';
import tseslint from 'typescript-eslint';

/**
 * What a type of library may import: siblings by tag, packages by name. ARCHITECTURE.md explains
 * the types.
 */
const layers = {
  base: { siblings: [], packages: [] },
  core: { siblings: ['base'], packages: ['ipaddr.js'] },
  port: { siblings: ['base'], packages: [] },
  api: {
    siblings: ['base'],
    packages: ['@bufbuild/protobuf', '@connectrpc/connect', '@bufbuild/protovalidate', 'ipaddr.js'],
  },
  security: {
    siblings: ['api', 'base'],
    packages: [
      '@bufbuild/protobuf',
      '@peculiar/x509',
      'reflect-metadata',
      '@bufbuild/cel',
      '@bufbuild/cel-spec',
      '@bufbuild/re2',
    ],
  },
  state: { siblings: ['port', 'api', 'base'], packages: ['@bufbuild/protobuf'] },
  logic: {
    siblings: ['state', 'core', 'port', 'security', 'api', 'base'],
    packages: ['@bufbuild/protobuf', '@connectrpc/connect'],
  },
  adapter: {
    siblings: ['core', 'port', 'security', 'api', 'base', 'adapter'],
    packages: [
      '@bufbuild/protobuf',
      '@connectrpc/connect',
      '@connectrpc/connect-node',
      '@opentelemetry/api',
      '@opentelemetry/exporter-trace-otlp-proto',
      '@opentelemetry/sdk-trace-node',
      'dns-packet',
      'ipaddr.js',
      'lmdb',
      'winston',
      'prom-client',
      'yaml',
    ],
  },
  sim: {
    siblings: ['base', 'core', 'port', 'api', 'security', 'state', 'logic', 'adapter', 'sim'],
  },
  app: { siblings: ['base', 'core', 'port', 'api', 'security', 'state', 'logic', 'adapter'] },
};

const scopes = {
  shared: ['shared'],
  coordinator: ['shared', 'coordinator'],
  agent: ['shared', 'agent'],
  all: ['shared', 'coordinator', 'agent', 'all'],
};

/** A package and every entry point of it. */
const withSubpaths = (packages) => packages.flatMap((name) => [name, `${name}/**`]);

const depConstraints = (forSpecs) => [
  ...Object.entries(layers).map(([type, { siblings, packages }]) => ({
    sourceTag: `type:${type}`,
    // Every type may use itself only where the table says so; libraries of one layer stay apart.
    onlyDependOnLibsWithTags: siblings.map((name) => `type:${name}`),
    ...(packages === undefined
      ? {}
      : {
          allowedExternalImports: forSpecs
            ? withSubpaths([
                ...packages,
                'fast-check',
                '@jest/globals',
                '@connectrpc/connect-node',
                'yaml',
                'typescript',
                'esbuild',
              ])
            : withSubpaths(packages),
        }),
  })),
  ...Object.entries(scopes).map(([scope, allowed]) => ({
    sourceTag: `scope:${scope}`,
    onlyDependOnLibsWithTags: allowed.map((name) => `scope:${name}`),
  })),
];

const boundaries = (forSpecs) => [
  'error',
  {
    allow: [],
    enforceBuildableLibDependency: false,
    banTransitiveDependencies: false,
    // Only the commands that need the store load it; their specs import it as usual.
    checkDynamicDependenciesExceptions: forSpecs ? ['@cloudless/.*'] : [],
    depConstraints: depConstraints(forSpecs),
  },
];

/**
 * Time and chance are passed in, so that a whole cluster runs on virtual time. Only adapters and
 * apps touch the real ones.
 */
const bannedGlobals = ['setTimeout', 'setInterval', 'setImmediate', 'performance'].map((name) => ({
  name,
  message: 'Take a Clock: only adapters and apps use the real time.',
}));
const bannedProperties = [
  { object: 'Date', property: 'now', message: 'Take a Clock.' },
  { object: 'Math', property: 'random', message: 'Take a Random.' },
  { object: 'crypto', property: 'getRandomValues', message: 'Take a Random.' },
  { object: 'crypto', property: 'randomUUID', message: 'Take a Random.' },
  {
    object: 'process',
    property: 'env',
    message: 'Settings are parsed once, in the app, and passed in.',
  },
];
const bannedSyntax = [
  { selector: "NewExpression[callee.name='Date'][arguments.length=0]", message: 'Take a Clock.' },
];

/**
 * Node 20's recursive mkdir never ends where a file system answers ENOENT to mkdir although the
 * parent exists.
 */
const bannedMkdir = {
  selector: 'CallExpression[callee.name=/^mkdir(Sync)?$/] Property[key.name="recursive"]',
  message:
    'Use makeDirectory or makeDirectorySync of @cloudless/app-kit: a recursive mkdir never ends on /proc and autofs.',
};

const specs = ['**/*.spec.ts', '**/*.e2e.ts', '**/conformance/**', '**/testing/**'];

/** Code without blank lines and comments. Longer files and functions hold more than one concern. */
const lengthLimits = (file, lines) => ({
  'max-lines': ['error', { max: file, skipBlankLines: true, skipComments: true }],
  'max-lines-per-function': ['error', { max: lines, skipBlankLines: true, skipComments: true }],
});

export default tseslint.config(
  {
    ignores: [
      '**/dist',
      '**/out-tsc',
      '**/node_modules',
      '.nx',
      'libs/*/src/gen',
      '**/*.cjs',
      'jest.preset.js',
      '**/*.d.ts',
    ],
  },
  ...tseslint.configs.recommended,
  {
    files: ['**/*.ts'],
    plugins: { '@nx': nx, 'import-x': importX },
    languageOptions: {
      parserOptions: {
        sourceType: 'module',
        projectService: true,
        tsconfigRootDir: import.meta.dirname,
      },
    },
    settings: {
      'import-x/parsers': { '@typescript-eslint/parser': ['.ts'] },
      'import-x/extensions': ['.ts', '.mjs', '.js'],
      'import-x/resolver-next': [
        createTypeScriptImportResolver({ conditionNames: ['@cloudless/source', 'import', 'node'] }),
      ],
    },
    rules: {
      '@nx/enforce-module-boundaries': boundaries(false),
      // The error of a promise without await is lost.
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true },
      ],
      'import-x/order': [
        'error',
        {
          groups: ['builtin', 'external', 'parent', ['sibling', 'index']],
          pathGroups: [{ pattern: '@cloudless/**', group: 'external', position: 'after' }],
          pathGroupsExcludedImportTypes: [],
          'newlines-between': 'ignore',
        },
      ],
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-non-null-assertion': 'error',
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_' },
      ],
      'no-restricted-exports': [
        'error',
        {
          restrictDefaultExports: {
            direct: true,
            named: true,
            defaultFrom: true,
            namedFrom: true,
            namespaceFrom: true,
          },
        },
      ],
      'no-console': 'error',
      eqeqeq: 'error',
      // A closure may read what is assigned once, later.
      'prefer-const': ['error', { ignoreReadBeforeAssign: true }],
    },
  },
  {
    files: ['apps/**/*.ts', 'libs/**/*.ts'],
    ignores: specs,
    rules: { 'no-restricted-syntax': ['error', bannedMkdir] },
  },
  {
    files: ['libs/**/*.ts'],
    ignores: [
      'libs/{state-store-lmdb,state-store-etcd,runtime-process,runtime-cri,cgroup-reader,mesh,ingress,observability,rpc-node,app-kit}/**',
      ...specs,
    ],
    rules: {
      'no-restricted-globals': ['error', ...bannedGlobals],
      'no-restricted-properties': ['error', ...bannedProperties],
      'no-restricted-syntax': ['error', bannedMkdir, ...bannedSyntax],
    },
  },
  {
    files: specs,
    rules: {
      '@nx/enforce-module-boundaries': boundaries(true),
      '@typescript-eslint/no-non-null-assertion': 'off',
    },
  },
  {
    files: ['apps/**/*.ts', 'libs/**/*.ts'],
    ignores: specs,
    rules: lengthLimits(350, 100),
  },
  {
    // Longer than the limits today: to split, and never to grow.
    files: [
      'apps/coordinator/src/coordinator.ts',
      'libs/agent-core/src/metrics/instrument-runtime.ts',
      'libs/agent-core/src/replica/{node-replicas,reduce-replica}.ts',
      'libs/api-server/src/handlers.ts',
      'libs/rollout/src/state/advance-rollout.ts',
      'libs/rpc-node/src/server/transport/dispatch.ts',
      'libs/simulation/src/sim-cluster/sim-cluster.ts',
      'libs/simulation/src/test-cluster/random-world.ts',
    ],
    rules: lengthLimits(480, 155),
  },
  {
    // What a library imports is what its package.json declares, no more and no less.
    // The simulation is a test bed: it is not published.
    files: ['libs/!(simulation)/package.json'],
    plugins: { '@nx': nx },
    languageOptions: { parser: jsoncParser },
    rules: {
      '@nx/dependency-checks': [
        'error',
        {
          buildTargets: ['build'],
          ignoredFiles: [
            '{projectRoot}/src/**/*.spec.ts',
            '{projectRoot}/src/**/testing/**',
            '{projectRoot}/jest.config.cjs',
          ],
          // The terminal library is optional, so it is loaded by require at run time.
          ignoredDependencies: ['@types/node', '@lydell/node-pty'],
          checkVersionMismatches: false,
        },
      ],
    },
  },
  {
    // Programs that print their result.
    files: ['examples/**/*.ts'],
    rules: { 'no-console': 'off' },
  },
  {
    files: ['tools/**/*.mjs', 'eslint.config.mjs'],
    rules: { 'no-console': 'off', 'no-restricted-exports': 'off' },
  },
);
