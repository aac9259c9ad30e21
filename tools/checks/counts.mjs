// Counts properties that make code hard to read: `node tools/checks/counts.mjs` prints a table.
// `--names` also lists the function names that do not begin with a verb. Not a test: compare the
// figures before and after a change of names or folders.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import ts from 'typescript';

/**
 * Words that a function name may begin with: verbs of the field, and the usual prepositions of
 * predicates and conversions.
 */
const VERBS = new Set(
  `abort accept acknowledge acquire add adjust admit adopt advance aggregate allocate allow announce
  append apply arm assert assign attach authorize await back balance batch begin bind book bound
  break buffer build cache calculate call can cancel capture change check choose clamp classify
  clean clear clone close collect combine commit compact compare complete compose compute concat
  configure confirm connect consume contains continue convert copy cordon correct count crash create
  cut decide declare decode decrement decrypt deduplicate defer define delay delete deliver derive
  describe destroy detach detect dial diff disable disconnect discover dispatch dispose divide
  download drain draw drop dump edit elapse emit enable encode end enforce enlarge enqueue enroll
  ensure enter equals escape estimate evaluate evict examine exec execute exists exit expand expect
  expire explain export expose extend extract fail feed fetch fill filter find finish fire flatten
  flip flush focus follow for force fork format forward free freeze from generate get give go grant
  group grow guard handle hash heal hide hold identify ignore import include increment index infer
  inherit init inject insert inspect install interpolate interrupt invalidate invoke is has iterate
  join keep kill label lead learn leave limit link list listen load locate lock log look lower make
  map mark match matches may measure merge migrate mount move must narrow needs normalize notify
  observe offer omit on open order override pack pad parse patch pause perform persist pick pin ping
  pipe place plan poll pop post prepare prepend preserve prevent print probe process produce promote
  prove provide prune publish pull push put quarantine query queue quote raise rank reach react read
  rebuild receive recompute reconcile reconnect record recover redact redirect reduce refer refresh
  refuse register reject release reload remember remove rename render renew reopen reorder repair
  repeat replace replay reply report request require reschedule reserve reset resize resolve respond
  rest restart restore restrict resume retain retire retry return reverse revoke rewrite roll
  rollback rotate round run sample satisfies save scale scan schedule score scrape search seek
  select send serialize serve set settle shift should show shrink shuffle shut shutdown sign signal
  simulate skip sleep sort spawn split spread stall stamp start step stop store strip submit
  subscribe subtract succeed suggest sum summarize supports suspend sweep switch sync take tally
  tear terminate test throttle throw tick to toggle track transact transfer transform translate
  traverse trim truncate try unblock uncordon undo unlock unmount unpack unpin unregister
  unsubscribe unwrap update upgrade upload upsert use uses validate verify view visit wait wake walk
  warn watch was were will with within without wrap write yield bring does exceeds shares accepts
  applies belongs blocks conflicts covers depends differs ends fits follows forbids holds ignores
  includes intersects mentions overlaps permits requires starts tolerates allows serves runs`.split(
    /\s+/,
  ),
);

const files = execFileSync('git', ['ls-files', '*.ts', '*.mjs', '*.proto'], { encoding: 'utf8' })
  .split('\n')
  .filter((file) => file !== '' && !file.includes('/gen/'));
/** Returns true for specs, e2e tests, test support, tools and the simulation. */
const isTest = (file) =>
  /\.(spec|e2e)\.ts$|\/(testing|conformance|scenarios)\/|^tools\/|^libs\/simulation\//.test(file);

const counts = {
  'functions outside tests': 0,
  'functions whose name starts with a verb': 0,
  'lines over 100 columns': 0,
  'comments that begin with What/Whether/Needs of/Who/How': 0,
  'casts outside tests (as X, without as const)': 0,
  'conditional spreads': 0,
};
/** Number of TypeScript files in each folder. */
const filesByFolder = new Map();
/** Number of functions of each name that does not begin with a verb. */
const otherNames = new Map();

/**
 * Returns the name of a function, method or function-valued variable; undefined for other nodes.
 */
function getFunctionName(node) {
  if (ts.isFunctionDeclaration(node)) return node.name?.text;
  if (ts.isMethodDeclaration(node) || ts.isMethodSignature(node))
    return ts.isIdentifier(node.name) ? node.name.text : undefined;
  const isArrow = (value) =>
    value !== undefined && (ts.isArrowFunction(value) || ts.isFunctionExpression(value));
  if (ts.isVariableDeclaration(node) || ts.isPropertyDeclaration(node))
    return ts.isIdentifier(node.name) && isArrow(node.initializer) ? node.name.text : undefined;
  return undefined;
}

/** Counts the properties of a node and of all nodes below. */
function visit(node, file) {
  const name = getFunctionName(node);
  if (name !== undefined && !isTest(file)) {
    counts['functions outside tests'] += 1;
    const word = /^_?[a-z0-9]+/.exec(name)?.[0] ?? name;
    if (VERBS.has(word)) counts['functions whose name starts with a verb'] += 1;
    else otherNames.set(name, (otherNames.get(name) ?? 0) + 1);
  }
  if (
    ts.isAsExpression(node) &&
    !isTest(file) &&
    !(ts.isTypeReferenceNode(node.type) && node.type.getText() === 'const')
  )
    counts['casts outside tests (as X, without as const)'] += 1;
  if (
    ts.isSpreadAssignment(node) &&
    ts.isParenthesizedExpression(node.expression) &&
    ts.isConditionalExpression(node.expression.expression) &&
    [node.expression.expression.whenTrue, node.expression.expression.whenFalse].some(
      (branch) => ts.isObjectLiteralExpression(branch) && branch.properties.length === 0,
    )
  )
    counts['conditional spreads'] += 1;
  ts.forEachChild(node, (child) => visit(child, file));
}

for (const file of files) {
  const text = readFileSync(file, 'utf8');
  counts['lines over 100 columns'] += text.split('\n').filter((line) => line.length > 100).length;
  counts['comments that begin with What/Whether/Needs of/Who/How'] += [
    ...text.matchAll(/(?:\/\*\*\s*(?:\*\s*)?|^\s*\/\/ )(?:What|Whether|Needs of|Who|How)\b/gm),
  ].length;
  if (!file.endsWith('.ts')) continue;
  filesByFolder.set(dirname(file), (filesByFolder.get(dirname(file)) ?? 0) + 1);
  visit(ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true), file);
}

for (const [property, count] of Object.entries(counts))
  console.log(`${String(count).padStart(6)}  ${property}`);
const [largest] = [...filesByFolder].sort(([, a], [, b]) => b - a);
console.log(`${String(largest[1]).padStart(6)}  files in the largest folder, ${largest[0]}`);
if (process.argv.includes('--names'))
  console.log(
    [...otherNames]
      .sort(([, a], [, b]) => b - a)
      .map(([name, count]) => `${name}:${count}`)
      .join(' '),
  );
