import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

/** Server that `npm run dev` talks to; its certificate is self-signed, hence `secure: false`. */
const backend = process.env["HOLDFAST_URL"] ?? "https://127.0.0.1:7441";

const proxy = { target: backend, secure: false, changeOrigin: true };

export default defineConfig({
  plugins: [react()],
  server: { proxy: { "/api": proxy, "/healthz": proxy } },
  build: {
    // Nothing becomes a data: URL: the content security policy allows only files of this server.
    assetsInlineLimit: 0,
    cssMinify: "lightningcss",
    // Browsers with light-dark(), <dialog> and :has().
    target: ["chrome123", "firefox121", "safari17.5"],
    reportCompressedSize: false,
  },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}", "scripts/*.test.mjs"],
    setupFiles: ["src/test/setup.ts"],
    restoreMocks: true,
    testTimeout: 60_000,
    env: { TZ: "UTC" },
  },
});
