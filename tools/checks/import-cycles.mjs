// Cycles of imports between modules. The rule no-cycle of eslint-plugin-import-x finds the same,
// and takes a quarter of the time of `eslint .`; this check takes seconds.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import ts from 'typescript';

/**
 * Lists the modules that a module imports or re-exports when it runs: static and dynamic imports,
 * without `import type` and `export type`. With `verbatimModuleSyntax`, TypeScript keeps an import of
 * `{ type A }` as an import of the module alone.
 * @param text - TypeScript source.
 * @returns the names as they are written.
 */
export function listImports(text) {
  const source = ts.createSourceFile('module.ts', text, ts.ScriptTarget.Latest);
  const names = source.statements.flatMap((statement) =>
    importsAtRunTime(statement) ? [statement.moduleSpecifier.text] : [],
  );
  const addDynamic = (node) => {
    if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      const [name] = node.arguments;
      if (name !== undefined && ts.isStringLiteralLike(name)) names.push(name.text);
    }
    ts.forEachChild(node, addDynamic);
  };
  if (text.includes('import(')) addDynamic(source);
  return names;
}

function importsAtRunTime(statement) {
  if (ts.isImportDeclaration(statement)) return statement.importClause?.isTypeOnly !== true;
  if (!ts.isExportDeclaration(statement)) return false;
  return statement.moduleSpecifier !== undefined && !statement.isTypeOnly;
}

/**
 * Returns the entry points of workspace packages.
 * @param root - directory of the workspace.
 * @param packageFiles - paths of their `package.json` files, relative to `root`.
 * @returns source file by name of the import, such as `@cloudless/base`.
 */
export function listEntryPoints(root, packageFiles) {
  const entries = packageFiles.flatMap((file) => {
    const { name, exports = {} } = JSON.parse(readFileSync(join(root, file), 'utf8'));
    return Object.entries(exports).flatMap(([path, conditions]) => {
      const source = conditions['@cloudless/source'];
      return source === undefined ? [] : [[join(name, path), join(dirname(file), source)]];
    });
  });
  return new Map(entries);
}

/**
 * Resolves imports among the modules of the workspace; imports of other packages are left out.
 * @param modules - text of each module by its path.
 * @param entryPoints - result of {@link listEntryPoints}.
 * @returns the imported paths by path.
 */
export function toImportGraph(modules, entryPoints = new Map()) {
  const resolve = (from, name) =>
    name.startsWith('.')
      ? join(dirname(from), name).replace(/\.js$/, '.ts')
      : entryPoints.get(name);
  return new Map(
    [...modules].map(([file, text]) => [
      file,
      listImports(text)
        .map((name) => resolve(file, name))
        .filter((target) => modules.has(target)),
    ]),
  );
}

/**
 * Finds cycles.
 * @param graph - result of {@link toImportGraph}.
 * @returns cycles as lists of paths that end with their first path: at least one when there is
 *   any, and none twice.
 */
export function findCycles(graph) {
  const cycles = [];
  const finished = new Set();
  const path = [];
  const visit = (file) => {
    const start = path.indexOf(file);
    if (start >= 0) cycles.push([...path.slice(start), file]);
    if (start >= 0 || finished.has(file)) return;
    path.push(file);
    for (const target of graph.get(file)) visit(target);
    path.pop();
    finished.add(file);
  };
  for (const file of graph.keys()) visit(file);
  return cycles;
}
