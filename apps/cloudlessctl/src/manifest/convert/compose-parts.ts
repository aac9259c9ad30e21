import { withDistinctNames, type ConvertedPort } from './converted-object.js';
import { withoutEmpty, isMap } from './source-map.js';
import { SourceMap } from './source-map.js';
import { splitWords, toDnsLabel } from './words.js';

/** Takes a size such as `512m` or `1.5gb`, powers of 1024, as a quantity of a manifest. */
export function toComposeSize(map: SourceMap, key: string): string | undefined {
  const text = map.takeText(key);
  if (text === undefined) return undefined;
  const [, number, unit] = /^(\d+(?:\.\d+)?)([bkmgt]?)b?$/i.exec(text) ?? [];
  if (number === undefined || unit === undefined) {
    map.note(key, `left out: expected a size such as 512m, got ${JSON.stringify(text)}`);
    return undefined;
  }
  const suffix = { k: 'Ki', m: 'Mi', g: 'Gi', t: 'Ti' }[unit.toLowerCase()] ?? '';
  return `${number}${suffix}`;
}

/** Converts `ports` in short form (`8080:80/tcp`) and long form. */
export function convertPorts(service: SourceMap): readonly ConvertedPort[] {
  const ports = service.takeList('ports').flatMap((port, index) => {
    const path = [...service.path, 'ports', index];
    if (isMap(port)) return convertLongPort(new SourceMap(port, path, service.report));
    // [host address:][host port:]container port[/protocol]
    const [, address, host, container, protocol] =
      /^(?:(?:(\[.+\]|[^:[\]]+):)?(\d*):)?(\d+)(?:\/(tcp|udp))?$/.exec(String(port)) ?? [];
    if (container === undefined) {
      service.report(path, `left out: ${String(port)} is no single port; declare each port`);
      return [];
    }
    if (address !== undefined)
      service.report(
        path,
        `the address ${address} was left out: the port is open on every address`,
      );
    return [toPort(container, host, protocol)];
  });
  // A port that is not published says nothing more than a published one, or the same once more.
  const isRepeated = (port: ConvertedPort, index: number): boolean =>
    ports.some(
      (other, otherIndex) =>
        other.containerPort === port.containerPort &&
        other.protocol === port.protocol &&
        (other.hostPort === port.hostPort
          ? otherIndex < index
          : port.hostPort === undefined && port.name === undefined),
    );
  return withDistinctNames(ports.filter((port, index) => !isRepeated(port, index)));
}

function convertLongPort(port: SourceMap): readonly ConvertedPort[] {
  const target = port.takeText('target');
  const published = port.takeText('published');
  const name = port.takeText('name');
  const protocol = port.takeText('protocol');
  port.ignore('mode', 'app_protocol');
  port.finish();
  if (target === undefined || !/^\d+$/.test(target) || !/^\d*$/.test(published ?? '')) {
    port.report(port.path, 'left out: is no single port; declare each port');
    return [];
  }
  return [
    {
      ...(name === undefined ? {} : { name: toDnsLabel(name) }),
      ...toPort(target, published, protocol),
    },
  ];
}

function toPort(
  container: string,
  host: string | undefined,
  protocol: string | undefined,
): ConvertedPort {
  return {
    containerPort: Number(container),
    ...(host === undefined || host === '' ? {} : { hostPort: Number(host) }),
    ...(protocol === 'udp' ? { protocol: 'UDP' } : {}),
  };
}

/** Converts `volumes` and `tmpfs`. Paths of the machine and named volumes are reported. */
export function convertVolumes(service: SourceMap): readonly Record<string, unknown>[] {
  const volumes = service
    .takeList('volumes')
    .flatMap((volume, index) => convertVolume(service, volume, index));
  const temporary = service.takeTexts('tmpfs').map((line, index) => {
    const [mountPath, options] = line.split(':');
    if (options !== undefined) service.note('tmpfs', `the options ${options} were left out`);
    return { name: `tmpfs-${index + 1}`, mountPath, emptyDir: { medium: 'MEMORY' } };
  });
  return [...volumes, ...temporary];
}

function convertVolume(
  service: SourceMap,
  volume: unknown,
  index: number,
): readonly Record<string, unknown>[] {
  const path = [...service.path, 'volumes', index];
  if (!isMap(volume)) {
    const [source = '', target, mode = ''] = String(volume).split(':');
    if (target === undefined)
      return [{ name: `volume-${index + 1}`, mountPath: source, emptyDir: {} }];
    const readOnly = mode.split(',').includes('ro') ? true : undefined;
    return toVolume(service, path, { index, source, mountPath: target, readOnly });
  }
  const long = new SourceMap(volume, path, service.report);
  const type = long.takeText('type');
  const source = long.takeText('source');
  const mountPath = long.takeText('target');
  const readOnly = long.takeFlag('read_only');
  const tmpfs = long.takeMap('tmpfs');
  const sizeLimitBytes = toComposeSize(tmpfs, 'size');
  tmpfs.finish();
  long.finish();
  if (mountPath === undefined) {
    service.report(path, 'left out: has no target');
    return [];
  }
  if (type === 'tmpfs' || source === undefined) {
    const emptyDir = type === 'tmpfs' ? withoutEmpty({ medium: 'MEMORY', sizeLimitBytes }) : {};
    return [{ name: `volume-${index + 1}`, mountPath, emptyDir }];
  }
  return toVolume(service, path, { index, source, mountPath, readOnly });
}

interface VolumeParts {
  readonly index: number;
  /** A path of the machine, or the name of a volume. */
  readonly source: string;
  readonly mountPath: string;
  readonly readOnly: boolean | undefined;
}

function toVolume(
  service: SourceMap,
  path: readonly (string | number)[],
  { index, source, mountPath, readOnly }: VolumeParts,
): readonly Record<string, unknown>[] {
  if (/^[.~]/.test(source)) {
    service.report(
      path,
      `left out: ${source} is a path relative to the Compose file; copy the files into the image, or to the nodes and use an absolute path`,
    );
    return [];
  }
  if (source.startsWith('/')) {
    service.report(
      path,
      `${source} must exist on each node, whose agent must allow the path (--allow-host-path)`,
    );
    return [
      withoutEmpty({
        name: `volume-${index + 1}`,
        mountPath,
        readOnly,
        hostPath: { path: source },
      }),
    ];
  }
  const name = toDnsLabel(source);
  service.report(
    path,
    `each node has its own volume ${name}, which starts empty, and replicas do not return to the node with their data: label the node that has the data, and set placement.nodeSelector`,
  );
  return [withoutEmpty({ name, mountPath, readOnly, named: { name } })];
}

/** Converts `ulimits`: a number, or a map with `soft` and `hard`. */
export function convertUlimits(ulimits: SourceMap): readonly Record<string, unknown>[] {
  return ulimits.keys.map((name) => {
    const value = ulimits.take(name);
    if (!isMap(value)) return withoutEmpty({ name, soft: ulimits.takeInteger(name) });
    const limit = ulimits.takeMap(name);
    const fields = { name, soft: limit.takeInteger('soft'), hard: limit.takeInteger('hard') };
    limit.finish();
    return withoutEmpty(fields);
  });
}

/** Converts `healthcheck` to a liveness probe, because Docker replaces an unhealthy task. */
export function convertHealthCheck(check: SourceMap): Record<string, unknown> | undefined {
  const isDisabled = check.takeFlag('disable') === true;
  const test = check.take('test');
  const command = toProbeCommand(check, test);
  const fields = withoutEmpty({
    exec: command === undefined ? undefined : { command },
    // The defaults of Docker, which differ from those of a manifest.
    period: check.takeText('interval') ?? '30s',
    timeout: check.takeText('timeout') ?? '30s',
    failureThreshold: check.takeInteger('retries'),
    initialDelay: check.takeText('start_period'),
  });
  check.finish({ start_interval: 'readiness is checked more often until a replica is ready' });
  return isDisabled || command === undefined ? undefined : fields;
}

function toProbeCommand(check: SourceMap, test: unknown): readonly string[] | undefined {
  if (test === undefined) return undefined;
  const [kind, ...rest] = Array.isArray(test)
    ? check.takeTexts('test')
    : ['CMD-SHELL', String(test)];
  if (kind === 'NONE') return undefined;
  if (kind === 'CMD') return rest;
  if (kind === 'CMD-SHELL') return ['sh', '-c', rest.join(' ')];
  const words = splitWords([kind, ...rest].join(' '));
  return 'value' in words ? words.value : undefined;
}
