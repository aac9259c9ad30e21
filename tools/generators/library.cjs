// Generator of a library:
//
//   npx nx g ./tools/generators/generators.json:library gate --type core --scope coordinator \
//     --description 'Decides whether a rollout may continue.'
const { formatFiles, readJson, updateJson, writeJson } = require('@nx/devkit');

/** Types whose code may use neither Node.js nor a clock. */
const PURE_TYPES = ['core'];

/**
 * Creates `libs/<name>` and refers to the library in the top-level tsconfig.json.
 * @param {import('@nx/devkit').Tree} tree
 * @param {{ name: string, description: string, type: string, scope: string }} options
 * @throws Error when a library of this name exists.
 */
async function createLibrary(tree, { name, description, type, scope }) {
  const root = `libs/${name}`;
  if (tree.exists(root))
    throw new Error(`${root} exists: choose another name, or delete the folder`);
  const { version, license } = readJson(tree, 'package.json');
  const isPure = PURE_TYPES.includes(type);
  writeJson(tree, `${root}/package.json`, {
    name: `@cloudless/${name}`,
    version,
    description,
    license,
    type: 'module',
    exports: {
      '.': {
        '@cloudless/source': './src/index.ts',
        types: './dist/index.d.ts',
        import: './dist/index.js',
        default: './dist/index.js',
      },
    },
    files: ['dist', 'src', '!dist/**/*.tsbuildinfo', '!src/**/*.spec.ts'],
    nx: {
      name,
      tags: [`type:${type}`, `scope:${scope}`],
      targets: { lint: {}, typecheck: {}, test: {}, build: {} },
    },
  });
  writeJson(tree, `${root}/tsconfig.json`, {
    extends: '../../tsconfig.base.json',
    files: [],
    include: [],
    references: [{ path: './tsconfig.lib.json' }, { path: './tsconfig.spec.json' }],
  });
  writeJson(tree, `${root}/tsconfig.lib.json`, {
    extends: '../../tsconfig.base.json',
    compilerOptions: {
      rootDir: 'src',
      outDir: 'dist',
      tsBuildInfoFile: 'dist/lib.tsbuildinfo',
      types: isPure ? [] : ['node'],
      ...(isPure ? { lib: ['es2023'] } : {}),
    },
    include: ['src/**/*.ts'],
    exclude: ['src/**/*.spec.ts', 'src/**/*.e2e.ts'],
  });
  writeJson(tree, `${root}/tsconfig.spec.json`, {
    extends: '../../tsconfig.base.json',
    compilerOptions: { rootDir: 'src', outDir: 'out-tsc/spec', types: ['node', 'jest'] },
    include: ['src/**/*.spec.ts', 'src/**/*.e2e.ts'],
    references: [{ path: './tsconfig.lib.json' }],
  });
  tree.write(
    `${root}/jest.config.cjs`,
    `module.exports = { preset: '../../jest.preset.js', displayName: '${name}' };\n`,
  );
  tree.write(`${root}/README.md`, `# @cloudless/${name}\n\n${description}\n`);
  tree.write(`${root}/src/index.ts`, 'export {};\n');
  updateJson(tree, 'tsconfig.json', (config) => ({
    ...config,
    references: [...config.references, { path: `./${root}` }],
  }));
  await formatFiles(tree);
  return () =>
    console.log(
      `created ${root}; next: npm install, then add what src imports to the dependencies of ${root}/package.json and to the references of its tsconfig files`,
    );
}

module.exports = createLibrary;
