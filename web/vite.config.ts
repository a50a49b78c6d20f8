import { defineConfig } from 'vite';

// `npm run dev` serves the page with live reload and hands everything else to a running server.
const server = 'http://127.0.0.1:' + (process.env['HOGA_PORT'] ?? '8080');

export default defineConfig({
  base: '/',
  build: {
    target: 'es2022',
    // The page works under `default-src 'self'`: nothing may be inlined as a data: address.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: {
      '/api': server,
      '/stream': { target: server, ws: true },
      '/ws-api': { target: server, ws: true },
    },
  },
});
