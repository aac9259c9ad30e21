// Checks that documents, comments and texts refer only to files, headings, npm scripts, Nx targets
// and requirement ids of this repository that exist. `node tools/checks/documents.mjs` prints each
// problem as FILE:LINE and ends with 1 when there is any.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path/posix';
import { pathToFileURL } from 'node:url';

/** Top-level folders: a word that begins with one of them is a path of the repository. */
const FOLDERS = ['apps', 'docs', 'examples', 'libs', 'proto', 'tools'];
const REPOSITORY_PATH = new RegExp(
  String.raw`(?<![\w@/.$*}-])(?:${FOLDERS.join('|')})/[\w@./*-]*[\w*/](?:#[\w-]+)?`,
  'g',
);
/** Files whose comments and texts are checked. */
const SOURCES = /\.(?:ts|mjs|cjs|js|proto|yaml|yml|json)$/;
/** Written by tools; and the test of this check, which is full of wrong references. */
const SKIPPED =
  /(?:^|\/)(?:gen|node_modules|dist|out-tsc)\/|package-lock\.json$|^tools\/checks\/documents\.test\.mjs$/;
/** A file that a document names without its folder. */
const BARE_FILE = /^[\w./-]+\.(?:ts|mjs|proto|md)$/;
/** Output of a build or a run: named in documents, in no commit. */
const MADE = /(?:^|\/)(?:dist|out-tsc|coverage)(?:\/|$)/;

/**
 * Finds references that lead nowhere.
 * @param files - Paths of all files of the repository, relative to its root, with `/`.
 * @param read - Returns the text of a file.
 * @returns `{ file, line, message }` for each problem, in the order of `files`.
 */
export function findProblems({ files, read }) {
  const tree = new Tree(files, read);
  const references = files
    .filter((file) => !SKIPPED.test(file))
    .flatMap((file) => {
      if (file.endsWith('.md')) return checkDocument(file, tree);
      return SOURCES.test(file) ? checkSource(file, tree) : [];
    });
  return [...references, ...checkLibraries(tree)];
}

/** Checks that every library is in the table of ARCHITECTURE.md, in the row of its type. */
function checkLibraries(tree) {
  if (!tree.files.has(ARCHITECTURE)) return [];
  const lines = tree.read(ARCHITECTURE).split('\n');
  return [...tree.files].flatMap((file) => {
    const name = /^libs\/([^/]+)\/package\.json$/.exec(file)?.[1];
    if (name === undefined) return [];
    const type = readPackage(file, tree).nx?.tags?.find((tag) => tag.startsWith('type:'));
    if (type === undefined) return [];
    const row = lines.findIndex((line) =>
      new RegExp(`^\\| *${type.slice('type:'.length)} *\\|`).test(line),
    );
    return row >= 0 && lines[row].includes(`\`${name}\``)
      ? []
      : [{ file: ARCHITECTURE, line: row + 1, message: `the row of ${type} has no ${name}` }];
  });
}

const ARCHITECTURE = 'ARCHITECTURE.md';

/** The files, folders and headings of a repository. */
class Tree {
  constructor(files, read) {
    this.files = new Set(files);
    this.folders = new Set(['.', '']);
    for (const file of files)
      for (let folder = dirname(file); folder !== '.'; folder = dirname(folder))
        this.folders.add(folder);
    this.read = read;
    this.anchors = new Map();
  }

  has(path) {
    const clean = normalize(path).replace(/\/$/, '');
    if (clean.includes('*')) {
      const pattern = new RegExp(
        `^${clean.replace(/[.+^${}()|[\]\\]/g, '\\$&').replace(/\*+/g, '[^/]*')}(?:/|$)`,
      );
      return [...this.files].some((file) => pattern.test(file));
    }
    return this.files.has(clean) || this.folders.has(clean);
  }

  /** Returns true when a file with this name, or this end of its path, is below a folder. */
  hasBelow(folder, name) {
    const prefix = folder === '.' ? '' : `${folder}/`;
    const end = `/${name.replace(/^\.?\//, '')}`;
    return [...this.files].some((file) => file.startsWith(prefix) && `/${file}`.endsWith(end));
  }

  hasAnchor(file, anchor) {
    if (!this.anchors.has(file)) this.anchors.set(file, listAnchors(this.read(file)));
    return this.anchors.get(file).has(anchor);
  }

  /** Returns why a path with an optional anchor does not exist; undefined when it exists. */
  findProblem(target) {
    const [path, anchor] = target.split('#');
    if (MADE.test(path)) return undefined;
    if (!this.has(path)) return `${path} does not exist`;
    if (anchor === undefined || !path.endsWith('.md')) return undefined;
    return this.hasAnchor(normalize(path), anchor)
      ? undefined
      : `${path} has no heading #${anchor}`;
  }
}

/** Returns the anchors of the headings of a document, as GitHub makes them. */
function listAnchors(text) {
  const anchors = new Set();
  for (const { text: line, fenced } of splitLines(text)) {
    for (const [, id] of line.matchAll(/<a (?:id|name)="([^"]+)"/g)) anchors.add(id);
    const heading = fenced ? undefined : /^#{1,6}\s+(.*?)\s*#*$/.exec(line)?.[1];
    if (heading === undefined) continue;
    const slug = heading
      .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
      .replace(/[`*]/g, '')
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\p{M}_\- ]/gu, '')
      .replace(/ /g, '-');
    let anchor = slug;
    for (let count = 1; anchors.has(anchor); count += 1) anchor = `${slug}-${count}`;
    anchors.add(anchor);
  }
  return anchors;
}

/** Returns the lines, each with its number; `fenced` is true in a fenced block. */
function splitLines(text) {
  let fence;
  return text.split('\n').map((line, index) => {
    const mark = /^\s*(```+|~~~+)/.exec(line)?.[1];
    const fenced = fence !== undefined || mark !== undefined;
    if (mark !== undefined && fence === undefined) fence = mark;
    else if (mark !== undefined && mark.startsWith(fence)) fence = undefined;
    return { text: line, number: index + 1, fenced };
  });
}

function checkDocument(file, tree) {
  const text = tree.read(file);
  const problems = [];
  const report = (line, message) => message !== undefined && problems.push({ file, line, message });
  for (const { text: line, number, fenced } of splitLines(text)) {
    for (const message of checkCommands(line, tree)) report(number, message);
    if (fenced) {
      for (const [path] of line.matchAll(REPOSITORY_PATH)) report(number, tree.findProblem(path));
      continue;
    }
    const spans = [...line.matchAll(/`([^`]+)`/g)].map(([, span]) => span);
    for (const span of spans) report(number, checkSpan(span, file, tree));
    const words = line.replace(/`[^`]*`|\]\([^)]*\)/g, '');
    for (const [name] of words.matchAll(/(?<![\w/.@*:-])[\w-]+(?:\/[\w-]+)*\.(?:ts|mjs|proto)\b/g))
      if (!tree.hasBelow('.', name)) report(number, `no file ${name} in the repository`);
  }
  for (const { line, message } of checkWalks(text, tree)) report(line, message);
  // Links may run over a line.
  const prose = blankCode(text);
  for (const match of prose.matchAll(/\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)/g))
    report(getLine(prose, match.index), checkLink(match[1], file, tree));
  for (const match of prose.matchAll(/^\s*\[[^\]]+\]:\s+(\S+)/gm))
    report(getLine(prose, match.index), checkLink(match[1], file, tree));
  return problems;
}

/**
 * Checks the rows of walks through the code: a cell with a file, then a cell with functions, which
 * the file must contain.
 */
function checkWalks(text, tree) {
  return splitLines(text).flatMap(({ text: line, number }) => {
    const [, file, names] =
      /\|\s*`([\w./-]+\.ts)`\s*\|\s*((?:`[\w.]+`(?:, )?)+)\s*\|/.exec(line) ?? [];
    if (file === undefined || !tree.files.has(file)) return [];
    const source = tree.read(file);
    return [...names.matchAll(/`([\w.]+)`/g)]
      .flatMap(([, name]) => name.split('.'))
      .filter((name) => !new RegExp(String.raw`\b${name}\b`).test(source))
      .map((name) => ({ line: number, message: `${file} has no ${name}` }));
  });
}

/** Returns the text with spaces in place of code, so that positions stay. */
function blankCode(text) {
  const blank = (code) => code.replace(/[^\n]/g, ' ');
  return splitLines(text)
    .map(({ text: line, fenced }) => (fenced ? blank(line) : line))
    .join('\n')
    .replace(/`[^`]*`/g, blank);
}

const getLine = (text, index) => text.slice(0, index).split('\n').length;

function checkLink(target, file, tree) {
  if (/^[a-z][a-z0-9+.-]*:/i.test(target)) return undefined;
  const decoded = decodeURIComponent(target);
  if (decoded.startsWith('#')) return tree.findProblem(`${file}${decoded}`);
  const path = normalize(join(dirname(file), decoded));
  return path.startsWith('..')
    ? `${target} leads out of the repository`
    : tree.findProblem(path.replace(/\/(#|$)/, '$1'));
}

/** Checks code in a document: paths of the repository, and files by their name alone. */
function checkSpan(span, file, tree) {
  for (const [path] of span.matchAll(REPOSITORY_PATH)) {
    const problem = tree.findProblem(path);
    if (problem !== undefined) return problem;
  }
  if (!BARE_FILE.test(span) || MADE.test(span) || FOLDERS.includes(span.split('/')[0]))
    return undefined;
  return tree.hasBelow(getProject(file), span) || tree.has(span)
    ? undefined
    : `no file ${span} below ${getProject(file)}`;
}

/** Returns the project of a document, whose files the document may name; `.` without a project. */
function getProject(file) {
  return /^(?:libs|apps|tools)\/[^/]+/.exec(file)?.[0] ?? '.';
}

function checkSource(file, tree) {
  const problems = [];
  const isCode = /\.(?:ts|mjs|cjs|js|proto)$/.test(file);
  tree
    .read(file)
    .split('\n')
    .forEach((line, index) => {
      const report = (message) => problems.push({ file, line: index + 1, message });
      for (const [path] of line.matchAll(REPOSITORY_PATH)) {
        // In code a text may be a path of a test's own tree, or of an import.
        if (!isCode || isComment(line) || path.startsWith('docs/')) {
          const problem = tree.findProblem(path);
          if (problem !== undefined) report(problem);
        }
      }
      if (isCode && isComment(line))
        for (const [name] of line.matchAll(
          /(?<![\w/.@*-])[\w-]+(?:\.(?:spec|e2e|test))?\.(?:ts|mjs|md)\b/g,
        ))
          if (!tree.hasBelow('.', name)) report(`no file ${name} in the repository`);
      for (const message of checkCommands(line, tree)) report(message);
    });
  return problems;
}

const isComment = (line) => /^\s*(?:\/\/|\/?\*)|\s\/\/\s/.test(line);

/** Checks the npm scripts, Nx targets and requirement ids that a line names. */
function checkCommands(line, tree) {
  const problems = [];
  for (const [, name] of line.matchAll(/\bnpm run ([\w:-]+)/g))
    if (readScripts(tree)[name] === undefined) problems.push(`there is no npm script ${name}`);
  for (const [, project, target] of line.matchAll(/\bnx run ([\w-]+):([\w-]+)/g))
    if (!/^[A-Z]+$/.test(target) && !listTargets(project, tree).has(target))
      problems.push(`there is no Nx target ${project}:${target}`);
  for (const [, project, pattern] of line.matchAll(/\bnx test ([\w-]+) -- ([\w.-]+)/g)) {
    const spec = new RegExp(`^(?:libs|apps|tools)/${project}/.*${pattern}.*`);
    if (![...tree.files].some((file) => file.endsWith('.spec.ts') && spec.test(file)))
      problems.push(`no spec of ${project} matches ${pattern}`);
  }
  for (const [id] of line.matchAll(/\bCLD-REQ-\d{3}\b/g))
    if (tree.files.has(REQUIREMENTS) && !tree.read(REQUIREMENTS).includes(id))
      problems.push(`${REQUIREMENTS} has no ${id}`);
  return problems;
}

const REQUIREMENTS = 'docs/requirements.md';

const readPackage = (path, tree) => (tree.files.has(path) ? JSON.parse(tree.read(path)) : {});
const readScripts = (tree) => readPackage('package.json', tree).scripts ?? {};

/** Returns the names of the targets of an Nx project. */
function listTargets(project, tree) {
  const folders = ['libs', 'apps', 'tools'].map((folder) => `${folder}/${project}/package.json`);
  return new Set(folders.flatMap((path) => Object.keys(readPackage(path, tree).nx?.targets ?? {})));
}

/** Returns the files of the repository at a root: those in git, and new files not ignored. */
export function listFiles(root) {
  const list = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '-z'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  const removed = execFileSync('git', ['ls-files', '-d', '-z'], { cwd: root, encoding: 'utf8' });
  const gone = new Set(removed.split('\0'));
  return list.split('\0').filter((file) => file !== '' && !gone.has(file));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const root = new URL('../..', import.meta.url).pathname;
  const problems = findProblems({
    files: listFiles(root),
    read: (file) => readFileSync(join(root, file), 'utf8'),
  });
  for (const { file, line, message } of problems) console.error(`${file}:${line}: ${message}`);
  console.log(`references that lead nowhere: ${problems.length}`);
  process.exit(problems.length === 0 ? 0 : 1);
}
