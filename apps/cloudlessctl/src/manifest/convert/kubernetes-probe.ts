import { withoutEmpty } from './source-map.js';
import type { SourceMap } from './source-map.js';

/** Converts a probe of a container; undefined when there is none. */
export function convertProbe(probe: SourceMap): Record<string, unknown> | undefined {
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
