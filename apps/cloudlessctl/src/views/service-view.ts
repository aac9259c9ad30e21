import {
  EndpointHealth_StatusSchema,
  LoadBalancerConfig_AlgorithmSchema,
  Port_Protocol,
  ServiceCondition_TypeSchema,
  ServiceSpec_SessionAffinity,
  ServiceSpec_TypeSchema,
  EndpointHealth_Status,
  type Service,
  type ServiceEndpoint,
  type ServicePort,
} from '@cloudless/api';
import { formatAge, formatDuration, formatLabels, formatWord } from '../output/human.js';
import { formatStyledTime, type Style } from '../output/style.js';
import { formatTable, type Cell } from '../output/table.js';
import { formatFields, formatSections } from './sections.js';

/** Formats services as a table. */
export function formatServiceTable(
  services: readonly Service[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [
      { header: 'NAMESPACE', dropOrder: 3 },
      'NAME',
      { header: 'TYPE', dropOrder: 2 },
      'ADDRESS',
      { header: 'PORTS', fit: 'wrap' as const },
      'READY',
      { header: 'AGE', dropOrder: 1 },
      ...(wide ? ['DNS NAME', { header: 'LABELS', fit: 'wrap' as const, minWidth: 16 }] : []),
    ],
    services.map((service) => [
      service.namespace,
      service.name,
      formatType(service),
      formatAddress(service),
      (service.spec?.ports ?? []).map(formatServicePort).join(', '),
      formatReadyEndpoints(service, style),
      formatAge(service.createdAt, nowMs),
      ...(wide ? [service.status?.dnsName ?? '', formatLabels(service.labels)] : []),
    ]),
    style,
    { wide },
  );
}

function formatType({ spec }: Service): string {
  if (spec === undefined) return '';
  if (spec.externalName !== '') return 'ExternalName';
  if (spec.headless) return 'Headless';
  return formatWord(ServiceSpec_TypeSchema.value[spec.type]?.name ?? '');
}

function formatAddress({ spec, status }: Service): string {
  return spec?.externalName || status?.clusterIp || 'none';
}

/** Formats a port: `http=80:8080`, `53/udp`. */
export function formatServicePort(port: ServicePort): string {
  const name = port.name === '' || port.name === `port-${port.port}` ? '' : `${port.name}=`;
  const target = port.targetPort === '' ? '' : `:${port.targetPort}`;
  const protocol = port.protocol === Port_Protocol.UDP ? '/udp' : '';
  const node = port.nodePort === 0 ? '' : ` (node port ${port.nodePort})`;
  return `${name}${port.port}${target}${protocol}${node}`;
}

function formatReadyEndpoints({ spec, status }: Service, style: Style): Cell | string {
  if (spec !== undefined && spec.externalName !== '') return '';
  const { readyEndpoints = 0, totalEndpoints = 0 } = status ?? {};
  const text = `${readyEndpoints}/${totalEndpoints}`;
  if (readyEndpoints === 0) return { text, paint: style.red };
  return readyEndpoints < totalEndpoints ? { text, paint: style.yellow } : text;
}

/** Formats endpoints as a table. */
export function formatEndpointTable(
  endpoints: readonly ServiceEndpoint[],
  nowMs: number,
  style: Style,
  wide: boolean,
): string {
  return formatTable(
    [
      'ENDPOINT',
      { header: 'PORT', dropOrder: 2 },
      'ADDRESS',
      'HEALTH',
      'NODE',
      { header: 'ZONE', dropOrder: 3 },
      { header: 'WEIGHT', dropOrder: 4 },
      { header: 'AGE', dropOrder: 1 },
      ...(wide ? ['WORKLOAD', 'VERSION', 'REGION'] : []),
      { header: 'REASON', fit: 'wrap' as const },
    ],
    endpoints.map((endpoint) => [
      endpoint.id,
      endpoint.portName,
      formatEndpointAddress(endpoint),
      formatHealth(endpoint, style),
      endpoint.nodeId,
      endpoint.zone,
      String(endpoint.weight ?? 100),
      formatAge(endpoint.registeredAt, nowMs),
      ...(wide
        ? [
            endpoint.workload,
            endpoint.version === 0 ? '' : String(endpoint.version),
            endpoint.region,
          ]
        : []),
      endpoint.health?.reason ?? '',
    ]),
    style,
    { wide },
  );
}

/** Formats the address and port of an endpoint; IPv6 addresses in brackets. */
export function formatEndpointAddress({ address, port }: ServiceEndpoint): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

function formatHealth({ health }: ServiceEndpoint, style: Style): Cell | string {
  const status = health?.status ?? EndpointHealth_Status.UNKNOWN;
  const text = formatWord(EndpointHealth_StatusSchema.value[status]?.name ?? '');
  if (status === EndpointHealth_Status.UNHEALTHY) return { text, paint: style.red };
  if (status === EndpointHealth_Status.DRAINING) return { text, paint: style.yellow };
  return text;
}

/** Formats everything that is known of a service. */
export function formatServiceDescription(
  service: Service,
  endpoints: readonly ServiceEndpoint[],
  nowMs: number,
  style: Style,
): string {
  const { spec, status, loadBalancer } = service;
  const selector = formatLabels(spec?.selector ?? {});
  const algorithm = loadBalancer?.algorithm ?? 0;
  return formatSections(style, [
    [
      '',
      formatFields([
        ['Name', `${service.namespace}/${service.name}`],
        ['Type', formatType(service)],
        ['Address', formatAddress(service)],
        ['DNS name', status?.dnsName ?? ''],
        ['Ports', (spec?.ports ?? []).map(formatServicePort).join(', ')],
        ['Workload', spec?.workload ?? ''],
        ['Labels selected', selector],
        ['External addresses', (spec?.externalIps ?? []).join(', ')],
        ['Session affinity', formatAffinity(service)],
        ['PROXY protocol', spec?.proxyProtocol === true ? 'version 2' : ''],
        ['Algorithm', formatWord(LoadBalancerConfig_AlgorithmSchema.value[algorithm]?.name ?? '')],
        ['Locality', loadBalancer?.localityAware === false ? 'not used' : 'nearest first'],
        [
          'Max connections',
          loadBalancer?.maxConnections ? `${loadBalancer.maxConnections} on each node` : '',
        ],
        ['Labels', formatLabels(service.labels)],
        ['Owner', service.ownerWorkload === '' ? '' : `workload ${service.ownerWorkload}`],
        ['Created', formatStyledTime(service.createdAt, style)],
      ]),
    ],
    ['Conditions', formatConditions(service, style)],
    ['Endpoints', formatEndpointTable(endpoints, nowMs, style, false)],
  ]);
}

function formatAffinity({ spec }: Service): string {
  if (spec?.sessionAffinity !== ServiceSpec_SessionAffinity.CLIENT_IP) return '';
  const timeout = spec.sessionAffinityTimeout;
  return `by client address${timeout === undefined ? '' : `, ${formatDuration(timeout)}`}`;
}

function formatConditions({ status }: Service, style: Style): string {
  const conditions = status?.conditions ?? [];
  if (conditions.length === 0) return '';
  return formatTable(
    ['CONDITION', 'HOLDS', 'REASON', { header: 'MESSAGE', fit: 'wrap' as const }],
    conditions.map(({ type, holds, reason, message }) => [
      formatWord(ServiceCondition_TypeSchema.value[type]?.name ?? ''),
      holds ? 'yes' : { text: 'no', paint: style.red },
      reason,
      message,
    ]),
    style,
  );
}
