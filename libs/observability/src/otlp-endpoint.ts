import type { ConfigField } from '@cloudless/base';

/**
 * Environment variable for the receiver of traces, which OpenTelemetry defines for all programs.
 */
export const OTLP_ENDPOINT_VARIABLE = 'OTEL_EXPORTER_OTLP_ENDPOINT';

/** Setting for the base address of a receiver of traces. Default undefined: no tracing. */
export const otlpEndpointField: ConfigField<string | undefined> = {
  fallback: undefined,
  parse: (raw) => {
    if (raw === '') return { value: undefined };
    const url = typeof raw === 'string' && URL.canParse(raw) ? new URL(raw) : undefined;
    if (url === undefined || !['http:', 'https:'].includes(url.protocol) || url.search !== '') {
      return {
        problem: `"${String(raw)}" must be the base address of an OTLP receiver for HTTP, such as http://127.0.0.1:4318`,
      };
    }
    return { value: url.href.replace(/\/+$/, '') };
  },
};

/**
 * Creates the `ConfigLayer` of the environment variable {@link OTLP_ENDPOINT_VARIABLE}. List the
 * layer before the layers of a program's own settings, which then take precedence. Messages about an
 * invalid value name the variable.
 */
export function createOtlpLayer(env: Readonly<Record<string, string | undefined>>) {
  const endpoint = env[OTLP_ENDPOINT_VARIABLE];
  return {
    source: 'environment',
    values: endpoint === undefined ? {} : { otlpEndpoint: endpoint },
    nameOf: () => OTLP_ENDPOINT_VARIABLE,
  };
}
