import { withDistinctNames } from './converted-object.js';
import type { ConvertedPort } from './converted-object.js';
import { withoutEmpty } from './source-map.js';
import type { SourceMap } from './source-map.js';

/**
 * Converts the ports and probes of a container. Probes of Kubernetes may use any port, those of a
 * workload declared TCP ports only: ports that probes use by number are declared.
 * @param declared - The ports of the container.
 */
export function convertProbes(
  container: SourceMap,
  declared: readonly ConvertedPort[],
): Record<string, unknown> {
  const keys = ['livenessProbe', 'readinessProbe', 'startupProbe'] as const;
  const ports = [...declared];
  const hasReadiness = container.takeMap('readinessProbe').keys.length > 0;
  const probes = keys.map((key) => {
    const probe = container.takeMap(key);
    for (const check of ['httpGet', 'tcpSocket', 'grpc'])
      if (probe.keys.includes(check)) declareProbePort(probe.takeMap(check), ports, hasReadiness);
    return [key, convertProbe(probe)] as const;
  });
  return { ports: withDistinctNames(ports), ...Object.fromEntries(probes) };
}

/** Adds the port of a check to `ports`, or reports a port that cannot be declared. */
function declareProbePort(check: SourceMap, ports: ConvertedPort[], hasReadiness: boolean): void {
  const text = check.takeText('port');
  if (text === undefined) {
    check.report(check.path, 'names no port: declare a TCP port in spec.ports and name it');
    return;
  }
  const tcp = ports.filter(({ protocol }) => protocol === undefined);
  if (tcp.some(({ name, containerPort }) => name === text || String(containerPort) === text))
    return;
  if (!/^[1-9]\d{0,4}$/.test(text)) {
    check.note('port', `the container has no TCP port ${text}: declare the port in spec.ports`);
    return;
  }
  ports.push({ containerPort: Number(text) });
  // Without a probe, replicas are ready when all declared TCP ports accept connections.
  if (!hasReadiness)
    check.note(
      'port',
      `the workload declares the port ${text} now, and a replica is ready only when the port accepts connections; a readinessProbe decides otherwise`,
    );
}

/** Converts a probe of a container; undefined when there is none. */
function convertProbe(probe: SourceMap): Record<string, unknown> | undefined {
  if (probe.keys.length === 0) return undefined;
  const exec = probe.takeMap('exec');
  const http = probe.takeMap('httpGet');
  const tcp = probe.takeMap('tcpSocket');
  const grpc = probe.takeMap('grpc');
  const command = exec.takeTexts('command');
  const scheme = http.takeText('scheme');
  if (scheme === 'HTTPS') http.note('scheme', 'HTTPS has no equivalent: probes use HTTP');
  const fields = withoutEmpty({
    exec: withoutEmpty({ command }),
    http: withoutEmpty({
      port: http.takeText('port'),
      path: http.takeText('path'),
      headers: Object.fromEntries(
        http
          .takeMaps('httpHeaders')
          .map((header) => [header.takeText('name') ?? '', header.takeText('value') ?? '']),
      ),
    }),
    tcp: withoutEmpty({ port: tcp.takeText('port') }),
    grpc: withoutEmpty({ port: grpc.takeText('port'), service: grpc.takeText('service') }),
    initialDelay: takeSeconds(probe, 'initialDelaySeconds'),
    period: takeSeconds(probe, 'periodSeconds'),
    timeout: takeSeconds(probe, 'timeoutSeconds'),
    successThreshold: probe.takeInteger('successThreshold'),
    failureThreshold: probe.takeInteger('failureThreshold'),
  });
  for (const map of [exec, http, tcp, grpc, probe]) map.finish();
  return fields;
}

function takeSeconds(probe: SourceMap, key: string): string | undefined {
  const seconds = probe.takeInteger(key);
  return seconds === undefined ? undefined : `${seconds}s`;
}
