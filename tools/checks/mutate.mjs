// Mutation test: changes one expression of a library at a time and runs the library's specs. A
// mutant that no spec fails for "survives" and shows a missing test (or code without effect). Run
// it in the root of the repository:
//
//   node tools/checks/mutate.mjs libs/scheduler --max 60
//
//   --max N         mutants to test, spread evenly over the files (default 60)
//   --seed N        another seed selects other mutants (default 1)
//   --only TEXT     only files whose path contains TEXT
//   --tests TEXT    only specs whose path matches TEXT (default: all specs of the library)
//   --min PERCENT   exit code 1 when fewer mutants are killed (default 0)
//   --report FILE   also write the result as a Markdown table
//   --list          print the mutants without running anything
//
// The file is changed in place and restored after each mutant, also on SIGINT and SIGTERM. After a
// SIGKILL the next run restores it from a copy. A run that takes three times as long as the run
// without mutants, plus 20 s, counts as killed: many mutants loop forever. Run the tool on a
// committed work tree.
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';

const root = process.cwd();
const ts = createRequire(join(root, 'package.json'))('typescript');

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    max: { type: 'string', default: '60' },
    seed: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
    tests: { type: 'string' },
    min: { type: 'string', default: '0' },
    report: { type: 'string' },
    list: { type: 'boolean', default: false },
  },
});
const library = positionals[0];
if (library === undefined || !existsSync(join(root, library, 'jest.config.cjs'))) {
  process.stderr.write('usage: node tools/checks/mutate.mjs libs/<name> [--max N] [--only TEXT]\n');
  process.exit(2);
}
/** Copy of the file that is changed now; exists only while a mutant runs. */
const backup = join(root, library, '.mutating.json');

/** Operators and the operators that replace them. */
const SWAPPED = {
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '===': '!==',
  '!==': '===',
  '&&': '||',
  '||': '&&',
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  '%': '*',
  '+=': '-=',
  '-=': '+=',
};
const SWAPPED_CALLS = { min: 'max', max: 'min', some: 'every', every: 'some' };
const DROPPED_CALLS = new Set(['filter', 'sort', 'toSorted', 'reverse', 'slice', 'trim']);

restore();
for (const signal of ['SIGINT', 'SIGTERM'])
  process.on(signal, () => {
    restore();
    process.exit(130);
  });

const files = listSourceFiles(join(root, library, 'src')).filter((file) =>
  file.includes(values.only),
);
const all = files.map((file) => listMutants(file)).filter((mutants) => mutants.length > 0);
const mutants = sample(all, Number(values.max), Number(values.seed));
print(`${library}: ${mutants.length} of ${all.flat().length} mutants in ${all.length} files\n`);
if (values.list) {
  for (const mutant of mutants) print(`${describe(mutant)}\n`);
  process.exit(0);
}

const startedAt = Date.now();
if ((await runSpecs(Infinity)) !== 'passed') {
  process.stderr.write('the specs fail without a mutant; repair them first\n');
  process.exit(2);
}
const timeoutMs = 3 * (Date.now() - startedAt) + 20_000;

for (const [index, mutant] of mutants.entries()) {
  mutant.result = await runMutant(mutant);
  print(`${index + 1}/${mutants.length} ${mutant.result.padEnd(8)} ${describe(mutant)}\n`);
}
const survivors = mutants.filter(({ result }) => result === 'survived');
const percent = Math.floor((100 * (mutants.length - survivors.length)) / mutants.length);
const table = report();
print(`\n${table}`);
if (values.report !== undefined) writeFileSync(values.report, table);
process.exit(percent < Number(values.min) ? 1 : 0);

/** Returns the sources below a directory, without specs, test helpers, generated and index files. */
function listSourceFiles(directory) {
  return readdirSync(directory, { recursive: true })
    .map((name) => join(directory, name))
    .filter((file) => file.endsWith('.ts'))
    .filter((file) => !/\.spec\.ts$|\.d\.ts$|\/index\.ts$|\/(testing|conformance|gen)\//.test(file))
    .sort();
}

/** Returns all mutants of a file: text ranges with their replacements. */
function listMutants(file) {
  const text = readFileSync(file, 'utf8');
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const found = [];
  const replace = (node, replacement) => {
    const start = node.getStart(source);
    found.push({ file, start, end: node.getEnd(), replacement, line: getLine(source, start) });
  };
  const visit = (node) => {
    if (ts.isTypeNode(node) || ts.isImportDeclaration(node) || ts.isInterfaceDeclaration(node))
      return;
    mutate(node, (part) => part.getText(source), replace);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found.map((mutant) => ({ ...mutant, original: text.slice(mutant.start, mutant.end) }));
}

/** Calls `replace` for each small change of one node that is likely to be a bug. */
function mutate(node, textOf, replace) {
  if (ts.isBinaryExpression(node)) {
    const operator = node.operatorToken.getText();
    // The sum of a string literal cannot become a difference.
    const isText = [node.left, node.right].some(ts.isStringLiteralLike);
    if (operator in SWAPPED && !isText) replace(node.operatorToken, SWAPPED[operator]);
    if (['&&', '||', '??', '+', '-'].includes(operator) && !isText)
      replace(node, textOf(node.left));
    if (['&&', '||'].includes(operator)) replace(node, textOf(node.right));
  } else if (ts.isIfStatement(node)) {
    replace(node.expression, `!(${textOf(node.expression)})`);
  } else if (ts.isConditionalExpression(node)) {
    replace(node.condition, `!(${textOf(node.condition)})`);
  } else if (ts.isPrefixUnaryExpression(node) && node.operator === ts.SyntaxKind.ExclamationToken) {
    replace(node, textOf(node.operand));
  } else if (ts.isNumericLiteral(node)) {
    replace(node, `(${node.getText()} + 1)`);
  } else if (ts.isBigIntLiteral(node)) {
    replace(node, `(${node.getText()} + 1n)`);
  } else if (node.kind === ts.SyntaxKind.TrueKeyword) {
    replace(node, 'false');
  } else if (node.kind === ts.SyntaxKind.FalseKeyword) {
    replace(node, 'true');
  } else if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
    const { name, expression } = node.expression;
    if (Object.hasOwn(SWAPPED_CALLS, name.text)) replace(name, SWAPPED_CALLS[name.text]);
    if (DROPPED_CALLS.has(name.text)) replace(node, textOf(expression));
  } else if (ts.isSpreadElement(node) && ts.isArrayLiteralExpression(node.parent)) {
    replace(node, '...[]');
  }
  if (
    ts.isExpressionStatement(node) &&
    ts.isCallExpression(node.expression) &&
    node.expression.expression.kind !== ts.SyntaxKind.SuperKeyword
  )
    replace(node, ';');
}

/** Takes mutants from all files in turn, in an order that the seed determines. */
function sample(lists, count, seed) {
  let state = seed;
  const next = () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
  const shuffled = lists.map((list) =>
    list
      .map((mutant) => ({ mutant, order: next() }))
      .sort((a, b) => a.order - b.order)
      .map(({ mutant }) => mutant),
  );
  // A file's share grows with its number of mutants.
  const total = lists.flat().length;
  const shares = shuffled.map((list) => Math.ceil((count * list.length) / total));
  return shuffled
    .flatMap((list, index) =>
      list.slice(0, shares[index]).map((mutant) => ({ mutant, order: next() })),
    )
    .sort((a, b) => a.order - b.order)
    .slice(0, count)
    .map(({ mutant }) => mutant)
    .sort((a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : a.start - b.start));
}

async function runMutant({ file, start, end, replacement }) {
  const text = readFileSync(file, 'utf8');
  writeFileSync(backup, JSON.stringify({ file, text }));
  try {
    writeFileSync(file, text.slice(0, start) + replacement + text.slice(end));
    return (await runSpecs(timeoutMs)) === 'passed' ? 'survived' : 'killed';
  } finally {
    restore();
  }
}

/** Runs the specs of the library in one process and stops at the first failing file. */
function runSpecs(limitMs) {
  return new Promise((done) => {
    const jest = join(root, 'node_modules/jest/bin/jest.js');
    const args = ['--config', `${library}/jest.config.cjs`, '--maxWorkers=1', '--silent', '--bail'];
    const child = spawn(
      process.execPath,
      [
        '--experimental-vm-modules',
        '--no-warnings',
        jest,
        ...args,
        ...(values.tests ? [values.tests] : []),
      ],
      { cwd: root, stdio: 'ignore', env: { ...process.env, CI: '1' } },
    );
    const timer = Number.isFinite(limitMs) && setTimeout(() => child.kill('SIGKILL'), limitMs);
    child.on('exit', (code) => {
      clearTimeout(timer);
      done(code === 0 ? 'passed' : 'failed');
    });
  });
}

function restore() {
  if (!existsSync(backup)) return;
  const { file, text } = JSON.parse(readFileSync(backup, 'utf8'));
  writeFileSync(file, text);
  rmSync(backup);
}

function describe({ file, line, original, replacement }) {
  const oneLine = (text) => text.replace(/\s+/g, ' ').slice(0, 60);
  return `${relative(root, file)}:${line} ${oneLine(original)} → ${oneLine(replacement)}`;
}

function report() {
  const rows = files.flatMap((file) => {
    const own = mutants.filter((mutant) => mutant.file === file);
    const killed = own.filter(({ result }) => result !== 'survived').length;
    return own.length === 0 ? [] : [`| ${relative(root, file)} | ${own.length} | ${killed} |`];
  });
  const lines = survivors.map((mutant) => `- \`${describe(mutant)}\``);
  return `# ${library}: ${percent} % of ${mutants.length} mutants killed (seed ${values.seed})

| file | mutants | killed |
| --- | --- | --- |
${rows.join('\n')}
${lines.length === 0 ? '' : `\nSurvivors:\n\n${lines.join('\n')}\n`}`;
}

function getLine(source, position) {
  return source.getLineAndCharacterOfPosition(position).line + 1;
}

function print(text) {
  process.stdout.write(text);
}
