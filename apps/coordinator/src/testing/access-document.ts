import type { DescMethod } from '@bufbuild/protobuf';
import {
  ACCESS_TABLE_SERVICES,
  getAccessRule,
  type AccessRule,
} from '@cloudless/identity/authorization';

/** The generated part of the page about access begins with this line. */
const MARKER =
  '<!-- Generated from the access table: npx tsx --conditions=@cloudless/source apps/coordinator/src/testing/update-access-document.ts -->';

/**
 * Returns the page about access with its tables rendered again.
 * @param page - Current text of the page; everything before {@link MARKER} is kept.
 */
export function renderAccessDocument(page: string): string {
  const end = page.indexOf(MARKER);
  if (end < 0) throw new Error(`docs/operating/access.md lacks the line ${MARKER}`);
  const sections = ACCESS_TABLE_SERVICES.map(
    (service) =>
      `### ${service.typeName}\n\n${renderTable([
        ['call', 'users need', 'nodes', 'nobody'],
        ...service.methods.map(renderRow),
      ])}`,
  );
  return `${page.slice(0, end)}${MARKER}\n\n${sections.join('\n\n')}\n`;
}

function renderRow(method: DescMethod): readonly string[] {
  const rule = getAccessRule(method) ?? {};
  const nodes = [
    ...(rule.node !== undefined || rule.authenticated === true ? ['✓'] : []),
    ...(rule.expiredNode === true ? ['also expired'] : []),
    ...(rule.node === 'assigned' ? ['for its replicas'] : []),
  ];
  return [
    method.name,
    renderUserRule(rule),
    rule.unauthenticated === true ? '✓' : nodes.join(', '),
    rule.unauthenticated === true ? '✓' : '',
  ];
}

function renderUserRule({ user, authenticated, unauthenticated, accessToken }: AccessRule): string {
  if (accessToken === 'always') return 'an access token';
  if (user === undefined) return authenticated === true || unauthenticated === true ? 'none' : '';
  const role = `\`${user.role}\` ${SCOPES[user.scope]}`;
  return accessToken === undefined ? role : `${role}, or an access token`;
}

const SCOPES = {
  namespace: 'in the namespace',
  cluster: 'in the whole cluster',
  filtered: 'filtered',
  self: 'own',
} as const;

/** Renders a Markdown table as Prettier formats it. */
function renderTable([head = [], ...body]: readonly (readonly string[])[]): string {
  const widths = head.map((_, column) =>
    Math.max(3, ...[head, ...body].map((cells) => cells[column]?.length ?? 0)),
  );
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`;
  return [
    line(head),
    `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`,
    ...body.map(line),
  ].join('\n');
}
