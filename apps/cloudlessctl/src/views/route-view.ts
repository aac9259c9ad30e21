import { RouteCondition_TypeSchema, type Route, type RouteRule } from '@cloudless/api';
import { formatAge, formatDuration, formatLabels, formatWord } from '../output/human.js';
import { formatStyledTime, type Style } from '../output/style.js';
import { formatTable } from '../output/table.js';
import { formatFields, formatSections } from './sections.js';

/** Formats routes as a table. */
export function formatRouteTable(
  routes: readonly Route[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [
      { header: 'NAMESPACE', dropOrder: 3 },
      'NAME',
      { header: 'HOSTS', fit: 'wrap' as const },
      { header: 'RULES', fit: 'wrap' as const },
      { header: 'TLS', dropOrder: 2 },
      { header: 'AGE', dropOrder: 1 },
      ...(wide ? ['NODES', { header: 'LABELS', fit: 'wrap' as const, minWidth: 16 }] : []),
      { header: 'PROBLEM', fit: 'wrap' as const },
    ],
    routes.map((route) => [
      route.namespace,
      route.name,
      formatHosts(route),
      (route.spec?.rules ?? []).map(formatRule).join(', '),
      formatTls(route),
      formatAge(route.createdAt, nowMs),
      ...(wide ? [formatNodes(route), formatLabels(route.labels)] : []),
      {
        text: (route.status?.conditions ?? [])
          .flatMap(({ holds, reason }) => (holds ? [] : [reason]))
          .join(', '),
        paint: style.yellow,
      },
    ]),
    style,
    { wide },
  );
}

/** Formats a rule: `/cart=web:80`. */
export function formatRule({ pathPrefix, service, port }: RouteRule): string {
  return `${pathPrefix}=${service}:${port}`;
}

function formatHosts({ spec }: Route): string {
  return spec === undefined || spec.hosts.length === 0 ? 'every host' : spec.hosts.join(', ');
}

function formatTls({ spec }: Route): string {
  if (spec?.tls === undefined) return 'no';
  return spec.redirectToHttps ? 'redirect' : 'yes';
}

function formatNodes({ spec }: Route): string {
  return formatLabels(spec?.nodeSelector ?? {}) || 'all nodes';
}

/** Formats everything that is known of a route. */
export function formatRouteDescription(route: Route, style: Style): string {
  const { spec, status, labels, createdAt } = route;
  const limits = spec?.limits;
  return formatSections(style, [
    [
      '',
      formatFields([
        ['Name', `${route.namespace}/${route.name}`],
        ['Hosts', formatHosts(route)],
        ['TLS', formatTls(route)],
        ['Certificate file', spec?.tls?.certificateFile ?? ''],
        ['Key file', spec?.tls?.keyFile ?? ''],
        ['Certificate secret', spec?.tls?.certificateSecret ?? ''],
        ['Nodes', formatNodes(route)],
        ['Largest headers', `${limits?.maxHeaderBytes ?? 0} bytes`],
        ['Largest body', limits?.maxBodyBytes ? `${limits.maxBodyBytes} bytes` : 'no limit'],
        ['Labels', formatLabels(labels)],
        ['Created', formatStyledTime(createdAt, style)],
      ]),
    ],
    [
      'Rules',
      formatTable(
        ['PATH PREFIX', 'SERVICE', 'PORT', 'TIMEOUT', 'RETRIES'],
        (spec?.rules ?? []).map(({ pathPrefix, service, port, timeout, retries = 0 }) => [
          ...[pathPrefix, service, port],
          timeout === undefined ? '' : formatDuration(timeout),
          String(retries),
        ]),
        style,
      ),
    ],
    [
      'Conditions',
      formatTable(
        ['CONDITION', 'HOLDS', 'REASON', { header: 'MESSAGE', fit: 'wrap' as const }],
        (status?.conditions ?? []).map(({ type, holds, reason, message }) => [
          formatWord(RouteCondition_TypeSchema.value[type]?.name ?? ''),
          holds ? 'yes' : { text: 'no', paint: style.yellow },
          ...[reason, message],
        ]),
        style,
      ),
    ],
  ]);
}
